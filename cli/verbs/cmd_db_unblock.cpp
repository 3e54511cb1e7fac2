// cli/verbs/cmd_db_unblock.cpp -- vitune db unblock: lifts the block of a kernel.
//
// A person's decision, kept in the user's own database and in no other. What it lifts may stand in
// any layer: on a block list, or as trials of the user's that did not end.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/cmd_db_unblock.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/arguments/stores.h"
#include "cli/output/results.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShortest = 8, kLongest = 64;  // digits of a kernel key

std::string wanted_key(const Session& session) {
  std::string key = session.operands.size() == 1 ? session.operands[0] : "";
  std::ranges::transform(key, key.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool is_hex = std::ranges::all_of(key, [](unsigned char c) { return std::isxdigit(c); });
  if (is_hex && key.size() >= kShortest && key.size() <= kLongest) return key;
  throw Error(ErrorCode::kUsage,
              "give one kernel key as 'vitune show --blocks' lists them: 8 hexadecimal digits of "
              "it or more");
}

bool begins_with(const Digest& kernel, const std::string& key) {
  return kernel.hex().starts_with(key);
}

// The kernel that is meant.
Digest chosen(const std::vector<BlockEntry>& blocks, const std::vector<TrialEntry>& trials,
              const std::string& key) {
  std::set<Digest> kernels;
  for (const BlockEntry& block : blocks) {
    if (begins_with(block.kernel_key, key)) kernels.insert(block.kernel_key);
  }
  for (const TrialEntry& entry : trials) {
    const Digest& kernel = entry.trial.kernel_key;
    if (is_timeout(entry.trial) && begins_with(kernel, key)) kernels.insert(kernel);
  }
  if (kernels.size() == 1) return *kernels.begin();
  throw Error(ErrorCode::kUsage,
              kernels.empty()
                  ? formatted("no kernel whose key begins with {} is blocked; 'vitune show "
                              "--blocks' lists those that are",
                              key)
                  : formatted("{} blocked kernels have keys that begin with {}; give more digits",
                              kernels.size(), key));
}

int run_unblock(Session& session) {
  const std::string key = wanted_key(session);
  LayeredStore stores = layered_store_over(session, open_to_write(session));
  std::vector<BlockEntry> blocks = stores.blocks();
  const Digest kernel = chosen(blocks, stores.user().all_trials(), key);
  std::erase_if(blocks, [&](const BlockEntry& block) { return block.kernel_key != kernel; });
  const std::int64_t forgotten = stores.user().forget_faults(kernel);
  stores.user().unblock_all(blocks);
  const bool was_wrong = std::ranges::any_of(
      blocks, [](const BlockEntry& block) { return block.status == TrialStatus::kWrong; });
  if (was_wrong) {
    session.console.log(LogLevel::kWarning,
                        "the kernel was found to give wrong results, and may be served from now "
                        "on; 'vitune verify' judges winners again");
  }
  Table table;
  table.column("kernel").column("blocks lifted", Align::kRight).column("trials forgotten");
  table.row(
      {kernel.hex().substr(0, 16), formatted("{}", blocks.size()), formatted("{}", forgotten)});
  ordered_json document = new_document("db unblock");
  document["kernel_key"] = kernel.hex();
  document["blocks_lifted"] = blocks.size();
  document["trials_forgotten"] = forgotten;
  session.console.show(table, document, "");
  return 0;
}

}  // namespace

Verb unblock_verb() {
  return {"db unblock",
          "Lift the block of a kernel, of whatever layer, in this database",
          "KEY",
          "KEY: as 'vitune show --blocks' lists it. The kernel may be served and tuned again until "
          "it is blocked anew.\nNeither merges nor packs take that along.",
          nullptr,
          run_unblock};
}

}  // namespace vitune
