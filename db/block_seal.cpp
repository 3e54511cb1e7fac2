// db/block_seal.cpp -- Sealing the block list and looking at the seal.
// SPDX-License-Identifier: Apache-2.0
#include "db/block_seal.h"

namespace vitune {
namespace {

Row seal_of(StoredTable& blocks) {
  Sha256 content;
  std::int64_t rows = 0;
  blocks.scan({}, [&](const Row& row) {
    content.append(to_blob(row_digest(blocks.spec().name, row)));
    ++rows;
  });
  return {std::string(blocks.spec().name), rows, to_blob(content.finish())};
}

}  // namespace

bool is_sealed(StoredTable& blocks, StoredTable& seals) {
  try {
    const Row now = seal_of(blocks);
    return seals.find(seals.key_of(now)) == now && blocks.count() == std::get<std::int64_t>(now[1]);
  } catch (const DatabaseError& error) {
    if (error.fault() == DatabaseFault::kDamaged) return false;
    throw;
  }
}

void seal(StoredTable& blocks, StoredTable& seals) { seals.put(seal_of(blocks)); }

}  // namespace vitune
