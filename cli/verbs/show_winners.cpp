// cli/verbs/show_winners.cpp -- Which stored winners are listed, in which order, and the counts of
// the others.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/show_winners.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "cli/arguments/options.h"
#include "cli/arguments/stored_gpus.h"
#include "cli/arguments/stores.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/verbs/shown_names.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;
using Stored = LayeredStore::Stored;

// Nothing, and a warning, for a stored text that this version cannot read: an import's, say.
ProblemPtr read_problem(Session& session, const std::string& text) {
  try {
    return parse_problem(text);
  } catch (const Error& error) {
    session.console.log(LogLevel::kWarning,
                        formatted("the stored winner of '{}' is left out: {}", text, error.what()));
    return nullptr;
  }
}

bool is_replayed(const Stored& stored) { return stored.entry.winner.origin == Origin::kReplayed; }

std::string shown_layer(Layer layer) { return layer == Layer::kUser ? "mine" : layer_name(layer); }

// The user's before others, measured ones before replayed ones; then by GPU, operator and problem,
// numbers in its text as numbers.
bool is_shown_before(const Stored& a, const Stored& b) {
  const auto head = [](const Stored& stored) {
    return std::tuple(stored.layer, is_replayed(stored), stored.entry.device.key(),
                      stored.entry.problem.operator_name);
  };
  if (head(a) != head(b)) return head(a) < head(b);
  return strverscmp(a.entry.problem.text.c_str(), b.entry.problem.text.c_str()) < 0;
}

// The user's choice of winners.
class Selection {
 public:
  Selection(const Session& session, const std::map<std::string, std::string>& names)
      : mine_(session.has("mine")),
        shipped_(session.has("shipped")),
        is_for_people_(session.console.format() == Format::kText),
        asks_for_some_(!names.empty() || session.has("gpu")) {}

  // True if the layers below the user's are counted instead of listed.
  bool counts_others() const { return is_for_people_ && !mine_ && !shipped_ && !asks_for_some_; }
  bool has(const Stored& stored) const {
    const bool is_mine = stored.layer == Layer::kUser;
    if (mine_ || shipped_) return is_mine ? mine_ : shipped_;
    if (counts_others()) return is_mine;
    return is_for_people_ || stored.comes_first;
  }

 private:
  bool mine_, shipped_, is_for_people_, asks_for_some_;
};

std::vector<Stored> wanted_winners(Session& session,
                                   const std::map<std::string, std::string>& names) {
  LayeredStore store = open_layered_store(session, Access::kReadOnly);
  std::vector<Stored> all = store.all_winners();
  std::vector<DeviceInfo> devices;
  for (const Stored& stored : all) devices.push_back(stored.entry.device);
  const WantsDevice wants_device = wanted_gpus(session, devices);
  std::erase_if(all, [&](const Stored& stored) {
    return !is_wanted(names, stored.entry.problem) ||
           (wants_device && !wants_device(stored.entry.device));
  });
  std::stable_sort(all.begin(), all.end(), is_shown_before);
  return all;
}

template <typename Value>
bool is_one_value(const std::vector<Stored>& all, Value&& value) {
  return std::ranges::all_of(
      all, [&](const Stored& stored) { return value(stored) == value(all.front()); });
}

Table table_of(const std::vector<Stored>& shown) {
  Table table = winner_table();
  table.column("layer");
  if (is_one_value(shown, [](const Stored& stored) { return stored.layer; })) table.if_room();
  table.column("GPU", Align::kLeft, {"gpu"});
  if (is_one_value(shown, [](const Stored& stored) { return stored.entry.device.key(); }))
    table.if_room();
  return table;
}

// "shipped: NVIDIA H200 193, NVIDIA H100 181 (--shipped)", a line for each layer below the user's.
std::string counts_of_others(const std::vector<Stored>& all) {
  std::map<Layer, std::map<std::string, std::int64_t>> counts;
  for (const Stored& stored : all) {
    if (stored.layer != Layer::kUser) ++counts[stored.layer][stored.entry.device.name];
  }
  std::string lines;
  for (const auto& [layer, gpus] : counts) {
    std::vector<std::pair<std::int64_t, std::string>> sorted;
    for (const auto& [gpu, count] : gpus) sorted.emplace_back(-count, gpu);
    std::ranges::sort(sorted);
    std::vector<std::string> words;
    for (const auto& [count, gpu] : sorted) words.push_back(formatted("{} {}", gpu, -count));
    lines += formatted("{}: {} (--shipped)\n", layer_name(layer), joined(words, ", "));
  }
  return lines;
}

// Winners from a recording that serve nothing, because a layer below has a measured one.
void tell_of_replayed(Session& session, const std::vector<Stored>& shown) {
  const auto count = std::ranges::count_if(
      shown, [](const Stored& stored) { return is_replayed(stored) && !stored.comes_first; });
  if (count == 0) return;
  session.console.log(
      LogLevel::kInfo,
      formatted("{} replayed {} not serve: measured ones of the same problems come first", count,
                count == 1 ? "winner does" : "winners do"));
}

const char* if_empty(const Session& session, const Selection& selection, bool names_some) {
  if (names_some) return "no winner is stored for this; 'vitune tune' finds one";
  if (selection.counts_others() || session.has("mine"))
    return "no winner of your own is stored; 'vitune tune' finds some";
  return "no winner is stored; 'vitune tune' finds some";
}

}  // namespace

void add_winner_options(boost::program_options::options_description& options) {
  add_switch(options, "mine", "winners of your own database only, all of them");
  add_switch(options, "shipped",
             "winners of the databases below your own: a site's, and those that are shipped");
  add_gpu_option(options);
}

int show_winners(Session& session, const std::map<std::string, std::string>& names) {
  const ShownNames shown_name(session, names);
  const Selection selection(session, names);
  const std::vector<Stored> all = wanted_winners(session, names);
  std::vector<Stored> shown;
  std::ranges::copy_if(all, std::back_inserter(shown),
                       [&](const Stored& stored) { return selection.has(stored); });
  Table table = table_of(shown);
  ordered_json document = new_document("show");
  document["winners"] = ordered_json::array();
  for (const Stored& stored : shown) {
    const WinnerEntry& entry = stored.entry;
    const auto problem = read_problem(session, entry.problem.text);
    if (!problem) continue;
    const std::string name = shown_name(entry.problem.text);
    auto row = winner_row(name, entry.winner, *problem, entry.device, session.console.verbose());
    row.emplace_back(shown_layer(stored.layer));
    row.emplace_back(entry.device.name);
    table.row(std::move(row));
    document["winners"].push_back({{"name", name},
                                   {"problem", entry.problem.text},
                                   {"layer", layer_name(stored.layer)},
                                   {"comes_first", stored.comes_first},
                                   {"device", device_json(entry.device)},
                                   {"winner", winner_json(entry.winner, *problem, entry.device)}});
  }
  session.console.show(table, document, if_empty(session, selection, !names.empty()));
  if (session.console.format() == Format::kText) tell_of_replayed(session, shown);
  if (selection.counts_others()) {
    session.console.print(session.console.fitted(terminal_safe(counts_of_others(all), true), 2));
  }
  return 0;
}

}  // namespace vitune
