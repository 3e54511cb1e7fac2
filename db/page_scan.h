// db/page_scan.h -- Rows out of a damaged file, page by page, with nothing but their digests to
// trust.
//
// Follows the published SQLite file format (sqlite.org/fileformat2.html): every b-tree page that
// may hold records is decoded cell by cell, whatever the rest of the file looks like, and a record
// counts if it has the columns of one of our tables, of today or of older_tables(), and its digest
// matches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "db/row.h"
#include "db/tables.h"

namespace vitune {

// Calls `visit` for each whole row (without its digest), then `finish` while the file is still
// open: closing it drops the locks that this process has on it. Throws DatabaseError if the file
// cannot be read, be it in one place only. Work and memory are bounded by the size of the file.
void scan_pages(const std::filesystem::path& path,
                const std::function<void(const TableSpec&, Row)>& visit,
                const std::function<void()>& finish);

}  // namespace vitune
