// cli/verbs/cmd_db_pack.cpp -- vitune db pack, contents.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/cmd_db_pack.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "cli/arguments/options.h"
#include "cli/arguments/stored_gpus.h"
#include "cli/arguments/stores.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/verbs/made_today.h"
#include "core/error.h"
#include "core/format.h"
#include "db/migrate.h"
#include "vitune/vitune.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;
using nlohmann::ordered_json;

void describe_pack(po::options_description& options) {
  add_gpu_option(options);
  add_switch(options, "replayed", "winners that were replayed from a recording too");
  add_value(options, "label", "TEXT",
            "what the pack says of itself, up to 59 characters; default: vitune's version and the "
            "time");
}

std::string label_of(const Session& session) {
  if (session.has("label")) return session.text("label");
  return formatted("vitune {}.{}.{}, {}", VITUNE_VERSION_MAJOR, VITUNE_VERSION_MINOR,
                   VITUNE_VERSION_PATCH, utc_now());
}

void tell_of_left_out(Session& session, const PackReport& report) {
  const std::pair<std::int64_t, const char*> reasons[] = {
      {report.unverified, "not verified; 'vitune verify' does it"},
      {report.stale,
       "of other kernels than this version makes; 'vitune db rekey' keeps those of the same "
       "machine code, else tune these problems again"},
      {report.without_kernel, "without the kernel that was judged; 'vitune verify' makes it"}};
  for (const auto& [count, why] : reasons) {
    if (count == 0) continue;
    session.console.log(LogLevel::kWarning, formatted("{} winners are left out: {}", count, why));
  }
}

int run_pack(Session& session) {
  if (session.operands.size() != 1 || session.operands[0].empty()) {
    throw Error(ErrorCode::kUsage, "give the file to write the pack to");
  }
  const fs::path file = session.operands[0];
  const auto store = open_existing_store(session, Access::kReadOnly);
  const std::string label = label_of(session);
  const PackReport report =
      store->write_pack(file, {label, wanted_gpus(session, store->devices()), makes_kernel_today(),
                               session.has("replayed")});
  Table table;
  table.column("what").column("count", Align::kRight);
  ordered_json document = new_document("db pack");
  document["file"] = file.string();
  document["label"] = label;
  document["digest"] = report.content.hex();
  const std::pair<const char*, std::int64_t> counts[] = {{"devices", report.devices},
                                                         {"winners", report.winners},
                                                         {"binaries", report.binaries},
                                                         {"blocks", report.blocks},
                                                         {"unverified", report.unverified},
                                                         {"stale", report.stale},
                                                         {"without_kernel", report.without_kernel},
                                                         {"replayed", report.replayed}};
  for (const auto& [name, count] : counts) {
    table.row({name, formatted("{}", count)});
    document[name] = count;
  }
  session.console.show(table, document, "");
  tell_of_left_out(session, report);
  if (report.replayed > 0 && !session.has("replayed")) {
    session.console.log(LogLevel::kWarning,
                        formatted("{} winners are left out: replayed from a recording, so that "
                                  "their kernels have not run here; --replayed takes them",
                                  report.replayed));
  }
  session.console.log(LogLevel::kInfo,
                      formatted("digest {}; VITUNE_DB=:{} serves it", report.content.hex(),
                                fs::absolute(file).string()));
  return 0;
}

// Winners of one operator on one kind of GPU, with where they come from.
struct Group {
  DeviceInfo device;
  std::int64_t winners = 0, unverified = 0;
  std::set<std::string> problems, origins, compilers, dates;
  std::set<int> drivers;
};

// "2026-11-22", of what is the start of a date.
std::string day_of(const std::string& date) { return date.substr(0, 10); }

std::string driver_text(int version) {
  return formatted("{}.{}", version / 1000, version % 1000 / 10);
}

std::map<std::pair<std::string, std::string>, Group> groups_of(Store& store) {
  std::map<std::pair<std::string, std::string>, Group> groups;
  for (const WinnerEntry& entry : store.winners()) {
    Group& group = groups[{entry.device.key(), entry.problem.operator_name}];
    group.device = entry.device;
    ++group.winners;
    if (!entry.winner.verified) ++group.unverified;
    group.problems.insert(entry.problem.text);
    group.origins.insert(origin_name(entry.winner.origin));
    group.compilers.insert(entry.winner.compiler_version);
    if (!entry.winner.tuned_at.empty()) group.dates.insert(day_of(entry.winner.tuned_at));
    group.drivers.insert(entry.winner.driver_version);
  }
  return groups;
}

int run_contents(Session& session) {
  const auto store = open_existing_store(session, Access::kReadOnly);
  const auto seal = store->pack_seal();
  Table table;
  table.column("GPU").column("operator").column("problems", Align::kRight).if_room();
  table.column("winners", Align::kRight).column("unverified", Align::kRight).column("origin");
  table.column("tuned").column("CUDA driver").if_room().column("compiler").if_room();
  ordered_json document = new_document("db contents");
  document["file"] = database_path(session)->string();
  document["pack"] = seal ? ordered_json{{"label", seal->label},
                                         {"rows", seal->rows},
                                         {"digest", seal->content.hex()}}
                          : ordered_json(nullptr);
  document["contents"] = ordered_json::array();
  for (const auto& [name, group] : groups_of(*store)) {
    std::vector<std::string> drivers;
    for (const int version : group.drivers) drivers.push_back(driver_text(version));
    const std::string first = group.dates.empty() ? "" : *group.dates.begin();
    const std::string last = group.dates.empty() ? "" : *group.dates.rbegin();
    table.row({group.device.name, name.second, formatted("{}", group.problems.size()),
               formatted("{}", group.winners), formatted("{}", group.unverified),
               joined(group.origins, ", "),
               first == last ? first : formatted("{} to {}", first, last), joined(drivers, ", "),
               joined(group.compilers, ", ")});
    document["contents"].push_back({{"device", device_json(group.device)},
                                    {"key", name.first},
                                    {"operator", name.second},
                                    {"problems", group.problems.size()},
                                    {"winners", group.winners},
                                    {"unverified", group.unverified},
                                    {"origins", group.origins},
                                    {"first_tuned", first},
                                    {"last_tuned", last},
                                    {"drivers", drivers},
                                    {"compilers", group.compilers}});
  }
  session.console.show(table, document, "no winner is stored");
  if (seal) {
    session.console.log(LogLevel::kInfo,
                        formatted("a pack, '{}', digest {}", seal->label, seal->content.hex()));
  }
  return 0;
}

}  // namespace

std::vector<Verb> pack_verbs() {
  return {
      {"db pack", "Write the verified winners and their kernels as one read-only file", "FILE",
       "The file appears whole, in the place of an older pack of that name, and is never written "
       "to again:\nVITUNE_DB=:FILE has it read below the user's database (docs/fleet.md). "
       "Example:\n"
       "  vitune db pack /opt/site/h200.pack --db tuned.db --gpu h200 --label \"site A, week 48\"",
       describe_pack, run_pack},
      {"db contents", "Which GPUs it has winners of, and where those come from", "", "", nullptr,
       run_contents},
  };
}

}  // namespace vitune
