// db/page_scan.cpp -- A reader of SQLite's page format that expects every byte to be wrong.
// SPDX-License-Identifier: Apache-2.0
#include "db/page_scan.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "db/sqlite.h"
#include "db/upgrade.h"

namespace vitune {
namespace {

constexpr std::size_t kPageSize = 4096;  // what bring_up_to_date() sets; no reserved bytes
constexpr std::uint64_t kMaxPayload = std::uint64_t{68} << 20;

using Bytes = std::span<const std::byte>;

std::uint64_t big_endian(Bytes bytes) {
  std::uint64_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | std::to_integer<std::uint64_t>(byte);
  return value;
}

// Takes a SQLite varint off the front; nothing if the bytes end first.
std::optional<std::uint64_t> take_varint(Bytes& bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 9 && i < bytes.size(); ++i) {
    const auto byte = std::to_integer<std::uint64_t>(bytes[i]);
    value = i == 8 ? value << 8 | byte : value << 7 | (byte & 0x7f);
    if (i == 8 || (byte & 0x80) == 0) {
      bytes = bytes.subspan(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

std::optional<Bytes> take(Bytes& bytes, std::uint64_t count) {
  if (count > bytes.size()) return std::nullopt;
  const Bytes front = bytes.first(static_cast<std::size_t>(count));
  bytes = bytes.subspan(static_cast<std::size_t>(count));
  return front;
}

class PageFile {
 public:
  explicit PageFile(const std::filesystem::path& path) : name_(path.string()) {
    struct ::stat info {};
    if (::stat(path.c_str(), &info) != 0) fail();
    file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file_ < 0) fail();
    pages_ = (static_cast<std::uint64_t>(info.st_size) + kPageSize - 1) / kPageSize;
  }
  ~PageFile() { ::close(file_); }
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  std::uint64_t pages() const { return pages_; }

  // The first page from `number` on of which something is stored; pages() + 1 if there is none.
  std::uint64_t next_stored(std::uint64_t number) const {
    const auto offset = static_cast<off_t>((number - 1) * kPageSize);
    const off_t data = ::lseek(file_, offset, SEEK_DATA);
    if (data >= 0) return std::max(number, static_cast<std::uint64_t>(data) / kPageSize + 1);
    return errno == ENXIO ? pages_ + 1 : number;  // anything else: it does not know of holes
  }

  // Page `number`, counted from 1; what a cut file lacks is zero. Bytes that are there and cannot
  // be read are an error: a disk or network that fails for a moment must not cost rows.
  bool read(std::uint64_t number, std::vector<std::byte>& page) const {
    page.assign(kPageSize, std::byte{0});
    if (number < 1 || number > pages_) return false;
    const auto offset = static_cast<off_t>((number - 1) * kPageSize);
    std::size_t done = 0;
    while (done < page.size()) {
      const ssize_t got =
          ::pread(file_, page.data() + done, page.size() - done, offset + static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail();
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done > 0;
  }

 private:
  [[noreturn]] void fail() const {
    throw DatabaseError(DatabaseFault::kOther,
                        "database " + name_ +
                            ": reading it to salvage it: " + std::strerror(errno) +
                            "; nothing was changed; try again, and if its disk is failing, copy "
                            "what can be read with `ddrescue` and salvage the copy");
  }
  std::string name_;
  int file_ = -1;
  std::uint64_t pages_ = 0;
};

std::optional<Value> column_value(std::uint64_t serial, Bytes& body) {
  constexpr std::uint64_t sizes[] = {0, 1, 2, 3, 4, 6, 8, 8};
  if (serial == 0) return Value(std::monostate{});
  if (serial == 8 || serial == 9) return Value(static_cast<std::int64_t>(serial - 8));
  if (serial == 10 || serial == 11) return std::nullopt;
  const std::uint64_t size = serial < 8 ? sizes[serial] : (serial - 12) / 2;
  const auto bytes = take(body, size);
  if (!bytes) return std::nullopt;
  if (serial == 7) return Value(std::bit_cast<double>(big_endian(*bytes)));
  if (serial < 7) {
    const auto unused = static_cast<int>(64 - 8 * size);
    return Value(static_cast<std::int64_t>(big_endian(*bytes) << unused) >> unused);
  }
  const auto* data = reinterpret_cast<const char*>(bytes->data());
  if (serial % 2 == 1) return Value(std::string(data, bytes->size()));
  return Value(Blob(bytes->begin(), bytes->end()));
}

std::optional<Row> decode_record(Bytes payload) {
  constexpr std::size_t kMaxColumns = 64;
  Bytes body = payload;
  const auto header_size = take_varint(body);
  if (!header_size || *header_size > payload.size()) return std::nullopt;
  Bytes header = payload.first(static_cast<std::size_t>(*header_size));
  take_varint(header);
  body = payload.subspan(static_cast<std::size_t>(*header_size));
  Row row;
  while (!header.empty() && row.size() < kMaxColumns) {
    const auto serial = take_varint(header);
    if (!serial) return std::nullopt;
    auto value = column_value(*serial, body);
    if (!value) return std::nullopt;
    row.push_back(std::move(*value));
  }
  return row;
}

// SQLite stores a whole number in a REAL column as an integer.
void restore_reals(const TableSpec& table, Row& row) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto* integer = std::get_if<std::int64_t>(&row[i]);
    if (integer != nullptr && table.columns[i].type == ColumnType::kReal) {
      row[i] = static_cast<double>(*integer);
    }
  }
}

class PageScanner {
 public:
  PageScanner(const PageFile& file, const std::function<void(const TableSpec&, Row)>& visit)
      : file_(file), visit_(visit), overflow_budget_(4 * file.pages() + 20000) {}

  void scan(std::uint64_t number) {
    if (!file_.read(number, page_)) return;
    const std::size_t start = number == 1 ? 100 : 0;  // the file's own header is on page 1
    const auto kind = std::to_integer<int>(page_[start]);
    const bool interior = kind == 2;
    if (kind != 13 && kind != 10 && !interior) return;
    const Bytes page(page_);
    const std::uint64_t cells = big_endian(page.subspan(start + 3, 2));
    const std::size_t pointers = start + (interior ? 12 : 8);
    for (std::uint64_t i = 0; i < cells; ++i) {
      const std::size_t at = pointers + 2 * static_cast<std::size_t>(i);
      if (at + 2 > page.size()) return;
      const std::uint64_t offset = big_endian(page.subspan(at, 2));
      if (offset < pointers || offset >= page.size()) continue;
      read_cell(kind, page.subspan(static_cast<std::size_t>(offset)));
    }
  }

 private:
  void read_cell(int kind, Bytes cell) {
    if (kind == 2 && !take(cell, 4)) return;  // the left child
    const auto size = take_varint(cell);
    if (!size || *size > kMaxPayload) return;
    if (kind == 13 && !take_varint(cell)) return;  // the rowid
    const std::uint64_t limit = kind == 13 ? kPageSize - 35 : (kPageSize - 12) * 64 / 255 - 23;
    std::uint64_t local = *size;
    if (local > limit) {
      const std::uint64_t least = (kPageSize - 12) * 32 / 255 - 23;
      const std::uint64_t fitting = least + (*size - least) % (kPageSize - 4);
      local = fitting <= limit ? fitting : least;
    }
    const auto front = take(cell, local);
    if (!front) return;
    std::vector<std::byte> payload(front->begin(), front->end());
    if (local < *size) {
      const auto next = take(cell, 4);
      if (!next || !append_overflow(big_endian(*next), *size, payload)) return;
    }
    offer(payload);
  }

  bool append_overflow(std::uint64_t next, std::uint64_t size, std::vector<std::byte>& payload) {
    std::vector<std::byte> page;
    while (payload.size() < size) {
      if (overflow_budget_ == 0 || !file_.read(next, page)) return false;
      --overflow_budget_;
      const auto rest = static_cast<std::size_t>(size) - payload.size();
      const std::size_t count = std::min(rest, kPageSize - 4);
      next = big_endian(Bytes(page).first(4));
      payload.insert(payload.end(), page.begin() + 4,
                     page.begin() + 4 + static_cast<std::ptrdiff_t>(count));
    }
    return true;
  }

  void offer(const std::vector<std::byte>& payload) {
    auto record = decode_record(payload);
    if (!record || record->empty()) return;
    const auto* digest = std::get_if<Blob>(&record->back());
    if (digest == nullptr || digest->size() != 32) return;
    const Blob expected = *digest;
    record->pop_back();
    for (const TableSpec* table : kAllTables) offer_as(*table, *record, expected);
    for (const OlderTable& table : older_tables()) offer_as(table.spec, *record, expected);
  }

  void offer_as(const TableSpec& table, Row row, const Blob& expected) {
    if (table.columns.size() != row.size()) return;
    restore_reals(table, row);
    if (to_blob(row_digest(table.name, row)) == expected) visit_(table, std::move(row));
  }

  const PageFile& file_;
  const std::function<void(const TableSpec&, Row)>& visit_;
  std::uint64_t overflow_budget_;  // pages; each belongs to one row in a healthy file
  std::vector<std::byte> page_;
};

}  // namespace

void scan_pages(const std::filesystem::path& path,
                const std::function<void(const TableSpec&, Row)>& visit,
                const std::function<void()>& finish) {
  const PageFile file(path);
  PageScanner scanner(file, visit);
  // A damaged journal may have lengthened the file by a hole of terabytes.
  for (std::uint64_t number = 1; (number = file.next_stored(number)) <= file.pages(); ++number)
    scanner.scan(number);
  finish();
}

}  // namespace vitune
