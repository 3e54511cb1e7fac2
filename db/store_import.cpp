// db/store_import.cpp -- Reading an export that may come from anyone.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "db/json_format.h"
#include "db/json_records.h"
#include "db/store_state.h"

namespace vitune {
namespace {

using Json = nlohmann::json;

struct Contents {
  std::vector<DeviceInfo> devices;
  std::vector<ProblemKey> problems;
  std::vector<ImportedWinner> winners;
  std::vector<ImportedTrial> trials;
  std::vector<ProblemRequest> requests;
};

// Watches the parser event by event: a record is read and dropped as soon as it is complete, so
// that memory is bounded by what is kept, and a hostile nesting or repetition stops it at once.
class ImportReader {
 public:
  bool on_event(int depth, Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (depth >= kMaxImportDepth && (event == Event::object_start || event == Event::array_start)) {
      refuse_import(place(), "is nested more than 8 deep");
    }
    switch (event) {
      case Event::object_start:
        return start_object(depth);
      case Event::array_start:
        if (depth == 0) refuse_import("the file", "must be an object, not a list");
        if (depth >= 2) refuse_import(place(), "must not hold lists");
        if (section_ == "format" || section_ == "schema") refuse_import(place(), "must be a value");
        return true;
      case Event::key:
        return enter_key(static_cast<std::size_t>(depth), value.get_ref<const std::string&>());
      case Event::value:
        return on_value(depth, value);
      case Event::object_end:
        if (depth == 2) finish_record(value);
        return depth != 2;
      case Event::array_end:
        return true;
    }
    return true;
  }

  // Throws unless the file was complete.
  Contents finish() {
    for (const char* name : {"format", "schema", "devices", "problems"}) {
      if (keys_.empty() || !keys_.front().contains(name)) refuse_import(name, "is missing");
    }
    return std::move(contents_);
  }

 private:
  std::string place() const {
    if (section_.empty()) return "the file";
    return section_ + "[" + std::to_string(index_) + "]";
  }

  bool start_object(int depth) {
    if (depth == 1) refuse_import(section_, "must be a list");
    if (depth == 2) {
      values_ = 0;
      if (++records_ > kMaxImportRecords) refuse_import(place(), "is beyond 1,000,000 records");
    }
    keys_.resize(static_cast<std::size_t>(depth) + 1);
    keys_.back().clear();
    return true;
  }

  bool enter_key(std::size_t depth, const std::string& key) {
    keys_.resize(depth);
    if (++values_ > kMaxRecordValues) refuse_import(place(), "has too many fields");
    if (!keys_.back().insert(key).second) refuse_import(place(), "has a field twice");
    if (depth != 1) return true;
    constexpr const char* sections[] = {"format",  "schema", "devices", "problems",
                                        "winners", "trials", "requests"};
    if (std::find(std::begin(sections), std::end(sections), key) == std::end(sections)) {
      refuse_import("the file", is_plain_text(key, 64) ? "has the unknown field \"" + key + "\""
                                                       : std::string("has an unknown field"));
    }
    section_ = key;
    index_ = 0;
    values_ = 0;
    return true;
  }

  bool on_value(int depth, const Json& value) {
    if (depth == 0) refuse_import("the file", "must be an object");
    if (depth == 2) refuse_import(place(), "must be an object");
    if (depth > 2) return true;
    if (section_ == "format") {
      if (value != kExportFormat) refuse_import("format", "must be \"vitune-export\"");
    } else if (section_ == "schema") {
      if (!value.is_number_integer() || value != kExportSchema) {
        refuse_import("schema", "must be 1; a newer export needs a newer vitune");
      }
    } else {
      refuse_import(section_, "must be a list");
    }
    return true;
  }

  void finish_record(const Json& object) {
    if (section_ == "devices") {
      contents_.devices.push_back(read_device(object, place()));
    } else if (section_ == "problems") {
      contents_.problems.push_back(read_problem(object, place()));
    } else if (section_ == "winners") {
      contents_.winners.push_back(read_winner(object, place()));
    } else if (section_ == "trials") {
      contents_.trials.push_back(read_trial(object, place()));
    } else {
      contents_.requests.push_back(read_request(object, place()));
    }
    ++index_;
  }

  Contents contents_;
  std::vector<std::set<std::string>> keys_;  // by depth, of the objects that are open
  std::string section_;
  std::int64_t index_ = 0;
  std::int64_t records_ = 0;
  int values_ = 0;
};

Contents read_contents(std::string_view text) {
  if (text.size() > kMaxImportBytes) refuse_import("the file", "is larger than 64 MiB");
  ImportReader reader;
  try {
    const Json parsed = Json::parse(text.begin(), text.end(),
                                    [&](int depth, Json::parse_event_t event, Json& value) {
                                      return reader.on_event(depth, event, value);
                                    });
  } catch (const Json::exception& error) {
    // Its text may quote the file; only the kind and the place are passed on.
    const auto* syntax = dynamic_cast<const Json::parse_error*>(&error);
    refuse_import("the file", syntax == nullptr
                                  ? std::string("holds a number that is out of range")
                                  : "is not valid JSON at byte " + std::to_string(syntax->byte));
  }
  return reader.finish();
}

template <typename T>
const T& referenced(const std::vector<T>& list, std::int64_t place, const std::string& where) {
  if (place >= static_cast<std::int64_t>(list.size())) {
    refuse_import(where, "names place " + std::to_string(place) + " of a list of " +
                             std::to_string(list.size()));
  }
  return list[static_cast<std::size_t>(place)];
}

}  // namespace

MergeReport Store::import_json(std::string_view json) {
  const Contents contents = read_contents(json);
  const auto staged = Store::in_memory();
  State& state = *staged->state_;
  Transaction transaction(*state.connection);
  for (const DeviceInfo& device : contents.devices) state.ensure_device(device);
  for (const ProblemKey& problem : contents.problems) state.ensure_problem(problem);
  for (std::size_t i = 0; i < contents.winners.size(); ++i) {
    const auto& [device, problem, winner] = contents.winners[i];
    const std::string where = "winners[" + std::to_string(i) + "]";
    state.winners.put(
        winner_row(device_id(referenced(contents.devices, device, where + ".device")),
                   problem_id(referenced(contents.problems, problem, where + ".problem")), winner));
  }
  for (std::size_t i = 0; i < contents.trials.size(); ++i) {
    const auto& [device, problem, trial] = contents.trials[i];
    const std::string where = "trials[" + std::to_string(i) + "]";
    state.trials.put(
        trial_row(device_id(referenced(contents.devices, device, where + ".device")),
                  problem_id(referenced(contents.problems, problem, where + ".problem")), trial));
  }
  for (const ProblemRequest& request : contents.requests) {
    state.requests.put(request_row(request));
  }
  transaction.commit();
  return merge(*staged);
}

}  // namespace vitune
