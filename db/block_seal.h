// db/block_seal.h -- Whether every row of the block list is there: a digest over all of them.
//
// A row that is lost without a trace (a damaged page may hide it) would let a kernel run that is
// known to be wrong. So each change of the list seals it, and who relies on it looks at the seal.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "db/table.h"

namespace vitune {

// True if `blocks` holds just the rows that it was sealed with, each of them whole. What SQLite
// finds damaged is not whole; any other failure to read throws.
bool is_sealed(StoredTable& blocks, StoredTable& seals);

// Inside a write transaction: what `blocks` holds now is what it should hold.
void seal(StoredTable& blocks, StoredTable& seals);

}  // namespace vitune
