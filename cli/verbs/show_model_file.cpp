// cli/verbs/show_model_file.cpp -- Reads a model file and asks the databases about its problems.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/show_model_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/arguments/device_probe.h"
#include "cli/arguments/model_inputs.h"
#include "cli/arguments/stores.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/verbs/show_space.h"
#include "core/error.h"
#include "core/format.h"
#include "core/printable.h"
#include "model/asked_problems.h"
#include "model/bind.h"
#include "model/check.h"
#include "model/graph.h"
#include "model/memory_plan.h"
#include "model/model_file.h"
#include "model/node_problems.h"
#include "runtime/dispatch/dispatcher.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostShown = 1000;  // bytes of a text of the file's
// A look into the databases takes some 30 ms of a problem that is not tuned. Models ask up to 60.
constexpr std::size_t kMostLookedUp = 200;

std::map<std::string, std::int64_t> kinds_of(const ModelGraph& graph) {
  std::map<std::string, std::int64_t> kinds;
  for (const ModelNode& node : graph.nodes) ++kinds[node_kind_name(node.kind)];
  return kinds;
}

std::string digest_text(const ModelContainer& file, DigestCheck check) {
  switch (check) {
    case DigestCheck::kSame:
      return file.text("vitune.digest");
    case DigestCheck::kAbsent:
      return "none that can be compared: another program wrote the file";
    case DigestCheck::kDiffers:
      break;
  }
  return "differs: a byte of the file is another one than when it was made";
}

std::string served_by(const std::vector<Choice>& choices) {
  return choices.empty() ? "no kernel" : lookup_outcome_name(choices.front().outcome);
}

DeviceInfo device_here(const Session& session) {
  const DeviceProbe probe = probe_devices(session.program);
  if (!probe.devices.empty()) return probe.devices.front();
  session.console.log(LogLevel::kInfo,
                      formatted("No usable GPU ({}); as on the recorded H200", probe.reason));
  return h200_facts();
}

std::int64_t batch_of(const Session& session) {
  if (!session.has("batch")) return 1;
  const std::vector<std::int64_t> images = model_input(session).images;
  if (images.size() != 1) {
    throw Error(ErrorCode::kUsage, "--batch of a model file takes one number");
  }
  return images.front();
}

class FileReport {
 public:
  FileReport(Session& session, const std::string& path)
      : session_(session), file_(load_model_file(path)) {
    graph_ = read_model_graph(file_.text("vitune.graph"), path);
    require_sound(file_, graph_, 1);
    batch_ = batch_of(session);
    require_sound(file_, graph_, batch_);
  }

  // The digest comes last: it takes as long as the whole file is read.
  int show() {
    const BatchTensors tensors(file_, graph_, batch_);
    describe(tensors);
    add_problems(bind(tensors));
    const bool is_text = session_.console.format() == Format::kText;
    if (is_text) session_.console.print(text_ + "\n");
    if (is_text) session_.console.show(table_, document_, "no node asks a problem");
    const DigestCheck check = check_model_digest(file_);
    text_.clear();
    line("digest", digest_text(file_, check));
    if (is_text) {
      session_.console.print("\n" + text_);
    } else {
      session_.console.show(table_, document_, "no node asks a problem");
    }
    return check == DigestCheck::kDiffers ? exit_status(ErrorCode::kFailure) : 0;
  }

 private:
  // A text of the file's: the beginning of a long one.
  void line(const char* name, const std::string& value) {
    const std::string shown = shortened(value, kMostShown);
    text_ += formatted("{:<9} {}\n", name, terminal_safe(value.empty() ? "not said" : shown));
    document_[name] = shown;
  }

  // The problems of a session's steps; where this version has no steps for some node, of the nodes
  // that it can serve.
  std::vector<AskedProblem> bind(const BatchTensors& tensors) {
    std::vector<ProblemPtr> asked;
    try {
      const BoundModel model = bind_model(tensors, graph_, file_);
      for (const ModelStep& step : model.steps) asked.push_back(step.problem);
      describe_session(model);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      line("session", formatted("none in this version: {}", error.what()));
      for (const ModelNode& node : graph_.nodes) {
        for (const ProblemPtr& problem : node_problems(tensors, node)) asked.push_back(problem);
      }
    }
    return counted_problems(asked);
  }
  void describe_session(const BoundModel& model) {
    const auto copies = std::count_if(model.steps.begin(), model.steps.end(),
                                      [](const ModelStep& step) { return step.is_copy; });
    const MemoryPlan plan = plan_memory(model, std::vector<std::int64_t>(model.steps.size(), 0));
    line("session", formatted("{} steps, {} of them copies; {:.1f} MB for values beside scratch "
                              "memory",
                              model.steps.size(), copies, static_cast<double>(plan.bytes) / 1e6));
    document_["steps"] = model.steps.size();
    document_["copies"] = copies;
    document_["arena_bytes"] = plan.bytes;
  }

  void describe(const BatchTensors& tensors) {
    line("source", file_.text("source"));
    line("licence", file_.text("license"));
    std::vector<std::string> words;
    for (const auto& [kind, count] : kinds_of(graph_)) {
      words.push_back(formatted("{} {}", count, kind));
      document_["kinds"][kind] = count;
    }
    line("nodes", formatted("{}: {}", graph_.nodes.size(), joined(words, ", ")));
    const std::int64_t weights = file_.bytes - file_.header_bytes;
    line("tensors",
         formatted("{}, {:.1f} MB", file_.tensors.size(), static_cast<double>(weights) / 1e6));
    line("values", formatted("{}, {:.1f} MB for batch {}", graph_.values.size(),
                             static_cast<double>(tensors.value_bytes()) / 1e6, batch_));
    line("inputs", signature(tensors, graph_.inputs));
    std::vector<std::string> outputs;
    for (const GraphOutput& output : graph_.outputs) {
      const BatchView view = tensors.view(output.of, "a result");
      outputs.push_back(
          formatted("{} {} [{}]", output.name, view.type, joined(view.extents, ", ")));
    }
    line("results", joined(outputs, ", "));
  }
  static std::string signature(const BatchTensors& tensors,
                               const std::vector<GraphTensor>& inputs) {
    std::vector<std::string> words;
    for (const GraphTensor& input : inputs) {
      const BatchView view = tensors.view({input.name, true, {}, {}, {}}, "an input");
      words.push_back(formatted("{} {} [{}]", input.name, view.type, joined(view.extents, ", ")));
    }
    return joined(words, ", ");
  }

  void add_problems(const std::vector<AskedProblem>& asked) {
    const DeviceInfo device = device_here(session_);
    LayeredStore store = open_layered_store(session_, Access::kReadOnly);
    Dispatcher dispatcher(device, Objective::kCold);
    document_["device"] = device_json(device);
    document_["batch"] = batch_;
    document_["problems"] = ordered_json::array();
    table_.column("calls", Align::kRight).column("served").column("problem");
    if (asked.size() > kMostLookedUp) {
      session_.console.log(
          LogLevel::kWarning,
          formatted(
              "{}: asks {} different problems; what serves them is looked up for the first {}",
              file_.path.string(), asked.size(), kMostLookedUp));
    }
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const AskedProblem& each = asked[i];
      const std::string served =
          i < kMostLookedUp ? served_by(dispatcher.first_choices(each.problem, store)) : "-";
      table_.row({formatted("{}", each.calls), served, each.problem->text()});
      document_["problems"].push_back({{"calls", each.calls},
                                       {"operator", each.problem->operator_name()},
                                       {"served", served},
                                       {"problem", each.problem->text()}});
    }
  }

  Session& session_;
  const ModelContainer file_;
  ModelGraph graph_;
  std::int64_t batch_ = 1;
  std::string text_;
  Table table_;
  ordered_json document_ = new_document("model_file");
};

}  // namespace

int show_model_file(Session& session, const std::string& path) {
  return FileReport(session, path).show();
}

}  // namespace vitune
