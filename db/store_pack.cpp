// db/store_pack.cpp -- Packs: winners and their kernels in one file that is only read.
//
// A pack is a database like any other, so that every reader can read it and a merge can take it.
// What makes it one is a seal over all its rows, whose name tells who packed it.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "db/block_seal.h"
#include "db/file_guard.h"
#include "db/replace_file.h"
#include "db/row_codec.h"
#include "db/store_state.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPackPrefix = "pack:";
constexpr std::size_t kMostLabel = 59;  // of the 64 characters of a seal's name

[[noreturn]] void fail(const fs::path& path, const std::string& tried) {
  throw DatabaseError(DatabaseFault::kOther, "pack " + path.string() + ": " + tried + ": " +
                                                 std::strerror(errno) + "; nothing was changed");
}

// A mistyped name must not cost a database.
void require_pack_or_nothing(const fs::path& path) {
  struct ::stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return;
    fail(path, "looking at what is there");
  }
  bool is_pack = false;
  try {
    is_pack = Store::open(path, Access::kReadOnly)->pack_seal().has_value();
  } catch (const DatabaseError&) {
  }
  if (is_pack) return;
  throw DatabaseError(DatabaseFault::kUnsafe,
                      "pack " + path.string() +
                          ": what is there is no pack of yours, and is left as it is; give another "
                          "name or remove it");
}

// The file's bytes and its name are on the disk when this returns.
void put_in_place(const fs::path& fresh, const fs::path& path) {
  if (::chmod(fresh.c_str(), 0444) != 0) fail(path, "making it read-only");
  sync_path(fresh);
  require_no_journal(path);
  if (::rename(fresh.c_str(), path.c_str()) != 0) fail(path, "putting it in its place");
  sync_path(path.parent_path());
}

}  // namespace

void Store::State::take_winners_for_pack(State& from, const Blob& device, const DeviceInfo& info,
                                         const PackOrder& order, PackReport& report) {
  const auto keys = from.problem_map();
  from.winners.scan({device}, [&](const Row& row) {
    const auto problem = keys.find(std::get<Blob>(row[1]));
    const auto winner = from.decoded(from.winners, row, winner_from_row);
    if (problem == keys.end() || !winner) return;
    if (!winner->verified) {
      ++report.unverified;
      return;
    }
    const bool replayed = winner->origin == Origin::kReplayed;
    if (replayed) ++report.replayed;
    if (replayed && !order.with_replayed) return;
    if (order.makes_kernel && !order.makes_kernel(info, problem->second, *winner)) {
      ++report.stale;
      return;
    }
    std::optional<Row> binary;
    if (winner->image_digest) {
      binary = from.binaries.find(binary_key(winner->kernel_key, winner->image_digest));
    }
    if (!binary || !makes_sense(kBinaryTable, *binary)) {
      ++report.without_kernel;
      return;
    }
    ensure_problem(problem->second);
    winners.put(row);
    ++report.winners;
    if (binaries.stored_digest(binaries.key_of(*binary))) return;
    binaries.put(*binary);
    ++report.binaries;
  });
}

void Store::State::take_for_pack(State& from, const PackOrder& order, PackReport& report) {
  for (const auto& [device, info] : from.device_map()) {
    if (order.wants_device && !order.wants_device(info)) continue;
    const std::int64_t before = report.winners;
    take_winners_for_pack(from, device, info, order, report);
    if (report.winners == before) continue;
    ensure_device(info);
    ++report.devices;
    from.blocks.scan({}, [&, key = info.key()](const Row& row) {
      const auto entry = from.decoded(from.blocks, row, block_from_row);
      if (!entry || entry->device_key != key || !is_for_others(row)) return;
      blocks.put(row);
      ++report.blocks;
    });
  }
  seal(blocks, seals);
}

PackReport Store::write_pack(const fs::path& path, const PackOrder& order) {
  if (order.label.empty() || !is_plain_text(order.label, kMostLabel)) {
    throw Error(ErrorCode::kUsage,
                "the label of a pack has 1 to 59 letters, digits, spaces and _=.,:@*%/+-[]() only");
  }
  if (!block_list_is_whole()) {
    throw DatabaseError(DatabaseFault::kDamaged,
                        "database " + state_->connection->name() +
                            ": its block list is damaged, so any of its kernels may be a wrong "
                            "one; nothing was packed, " +
                            kSalvageAdvice);
  }
  const fs::path resolved = resolve_database_path(path, true);
  require_no_journal(resolved);
  require_pack_or_nothing(resolved);
  UnfinishedFile fresh(
      free_name(resolved.string() + ".new-" + utc_stamp() + "-" + std::to_string(::getpid())));
  PackReport report;
  {
    const auto pack = open(fresh.path(), Access::kReadWrite, state_->log_sink);
    State& state = *pack->state_;
    Transaction snapshot(*state_->connection, Transaction::Kind::kRead);
    Transaction transaction(*state.connection);
    state.take_for_pack(*state_, order, report);
    const auto [content, rows] = state.content(DigestOf::kAll);
    state.seals.put({std::string(kPackPrefix) + order.label, rows, to_blob(content)});
    transaction.commit();
    snapshot.commit();
    report.content = content;
    state.connection->compact();
  }
  put_in_place(fresh.path(), resolved);
  fresh.keep();
  return report;
}

std::optional<PackSeal> Store::State::find_pack_seal() {
  std::optional<PackSeal> found;
  seals.scan({}, [&](const Row& row) {
    const auto seal = decode_row(row, [](RowReader& reader) {
      std::string name = reader.text();
      const std::int64_t rows = reader.integer();
      return PackSeal{std::move(name), rows, reader.digest()};
    });
    if (seal && seal->label.starts_with(kPackPrefix)) found = seal;
  });
  if (found) found->label.erase(0, kPackPrefix.size());
  return found;
}

std::optional<PackSeal> Store::pack_seal() { return state_->find_pack_seal(); }

std::optional<std::string> Store::State::pack_fault() {
  try {
    Transaction snapshot(*connection, Transaction::Kind::kRead);
    const auto sealed = find_pack_seal();
    if (!sealed || std::pair(sealed->content, sealed->rows) == content(DigestOf::kAll)) {
      return std::nullopt;
    }
  } catch (const DatabaseError& error) {
    if (error.fault() != DatabaseFault::kDamaged) throw;
  }
  return "the pack is not whole: its rows are not those that it was sealed with; pack it again";
}

}  // namespace vitune
