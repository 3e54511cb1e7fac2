// cli/verbs/verify_model_file.cpp -- Steps that are wrong, and the worst of those that are right.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/verify_model_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/arguments/model_inputs.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/passes/judge_tools.h"
#include "cli/passes/opened_model.h"
#include "cli/passes/pass_check.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kSeed = 1;

std::string node_text(const ModelStep& step) {
  const std::string at = step.at.empty() ? "no module" : step.at;
  return step.is_copy ? at + " (a copy)" : at;
}

class FileCheck {
 public:
  FileCheck(Session& session, const std::string& path)
      : session_(session),
        device_(one_device(session)),
        opened_(session, path, device_),
        tools_(device_, {session.program.string(), "--worker=compile"}) {
    table_.column("batch", Align::kRight).column("step", Align::kRight).column("node");
    table_.column("verdict").column("of bound", Align::kRight, {"bound_share"}).column("problem");
    document_["file"] = path;
    document_["device"] = device_json(opened_.context.driver().device_info(device_));
    document_["passes"] = ordered_json::array();
  }

  int run() {
    const auto batches = session_.has("batch") ? model_input(session_).images : std::vector{1L};
    for (const std::int64_t batch : batches) {
      if (!session_.stop) check(batch);
    }
    session_.console.end_progress();
    document_["interrupted"] = session_.stop.load();
    session_.console.show(table_, document_, "nothing was checked");
    session_.console.log(wrong_ == 0 ? LogLevel::kInfo : LogLevel::kError,
                         formatted("{} steps checked, {} wrong", checked_, wrong_));
    for (const std::string& sentence : whole_) session_.console.log(LogLevel::kError, sentence);
    if (wrong_ != 0 || !whole_.empty()) return exit_status(ErrorCode::kVerification);
    return session_.stop ? exit_status(ErrorCode::kInterrupted) : 0;
  }

 private:
  void check(std::int64_t batch) {
    ModelSession pass(opened_.model, batch, false);
    const std::vector<ModelStep>& steps = pass.bound().steps;
    std::set<const Operator*> judges;
    for (const ModelStep& step : steps) judges.insert(&step.problem->op());
    session_.console.progress(formatted("batch {}: judges are compiled", batch));
    tools_.add_judges({judges.begin(), judges.end()});
    const PassVerdict verdict =
        PassCheck(pass, tools_.tools()).check(kSeed, session_.stop, [&](std::size_t step) {
          session_.console.progress(formatted("batch {}: step {} of {}, {}", batch, step + 1,
                                              steps.size(), node_text(steps[step])));
        });
    add(batch, steps, verdict);
  }

  // Adds what is wrong, or else the step that has used most of its allowance.
  void add(std::int64_t batch, const std::vector<ModelStep>& steps, const PassVerdict& verdict) {
    document_["passes"].push_back({{"batch", batch},
                                   {"steps", steps.size()},
                                   {"right", verdict.is_right() && !session_.stop},
                                   {"whole", verdict.whole},
                                   {"checked", ordered_json::array()}});
    for (const StepVerdict& each : verdict.steps) {
      document_["passes"].back()["checked"].push_back(step_json(steps[each.step], each));
      if (!each.why.empty()) add_row(batch, steps[each.step], each);
      wrong_ += each.why.empty() ? 0 : 1;
    }
    checked_ += verdict.steps.size();
    if (!verdict.whole.empty()) whole_.push_back(formatted("batch {}: {}", batch, verdict.whole));
    const auto worst = std::ranges::max_element(verdict.steps, {}, &StepVerdict::part_of_bound);
    if (worst == verdict.steps.end()) return;
    document_["passes"].back()["worst"] = steps[worst->step].at;
    if (worst->why.empty()) add_row(batch, steps[worst->step], *worst);
  }

  static ordered_json step_json(const ModelStep& step, const StepVerdict& verdict) {
    return {{"step", verdict.step},
            {"node", step.at},
            {"copy", step.is_copy},
            {"problem", step.problem->text()},
            {"max_error", verdict.error.max_error},
            {"max_bound", verdict.error.max_bound},
            {"rms_error", verdict.error.rms_error},
            {"rms_bound", verdict.error.rms_bound},
            {"why", verdict.why}};
  }

  void add_row(std::int64_t batch, const ModelStep& step, const StepVerdict& verdict) {
    table_.row({formatted("{}", batch), formatted("{}", verdict.step), node_text(step),
                verdict.why.empty() ? "right; the worst of all" : "wrong: it " + verdict.why,
                share_cell(verdict.part_of_bound()), step.problem->text()});
  }

  Session& session_;
  const int device_;
  OpenedModel opened_;
  JudgeTools tools_;
  Table table_;
  ordered_json document_ = new_document("model_verify");
  std::size_t checked_ = 0, wrong_ = 0;
  std::vector<std::string> whole_;
};

}  // namespace

int verify_model_file(Session& session) {
  session.refuse({"dtype", "as", "operator", "problem", "preset", "from", "objective", "jobs"},
                 "does not go with a model file, whose passes are checked whole");
  return FileCheck(session, only_model_file(session)).run();
}

}  // namespace vitune
