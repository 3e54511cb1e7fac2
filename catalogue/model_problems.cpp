// catalogue/model_problems.cpp -- From the calls of a model to the problems of so many images.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/model_problems.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "catalogue/model_files.h"
#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"

namespace vitune {
namespace {

ScoreOperand scaled_operand(ScoreOperand operand, const AttentionProblem& traced,
                            std::int64_t batch, ElementType dtype) {
  // One entry for all or for each window stays; one for each of the batch grows with it.
  if (operand.batches == traced.batch) operand.batches = batch;
  if (operand.type != ElementType::kBool) operand.type = dtype;
  return operand;
}

std::int64_t times_images(std::int64_t count, std::int64_t images) {
  if (const auto product = checked_mul(count, images)) return *product;
  throw Error(ErrorCode::kUnsupported,
              formatted("{} images are too many: use a smaller batch", images));
}

AttentionProblem scaled(const ModelCall& call, std::int64_t images, ElementType dtype) {
  AttentionProblem problem = call.traced;
  problem.dtype = dtype;
  if (!call.each_image) problem.batch = times_images(call.traced.batch / kTracedImages, images);
  for (auto* operand : {&problem.bias, &problem.mask}) {
    if (*operand) *operand = scaled_operand(**operand, call.traced, problem.batch, dtype);
  }
  problem.validate();
  return problem.canonical();
}

// Why the kernels do not take a call, or nothing. One image is asked: so many that they are too
// many are another matter.
std::optional<std::string> refusal(const OtherCall& call) {
  try {
    parse_problem(call_text(call, 1, ElementType::kBf16));
    return std::nullopt;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return error.what();
  }
}

// Calls that differ for two images may be the same for one: their strides of b do not matter.
void add_calls(std::vector<ModelProblem>& problems, ProblemPtr problem, std::int64_t calls) {
  const auto same = std::ranges::find_if(
      problems, [&](const ModelProblem& known) { return is_same(*known.problem, *problem); });
  if (same == problems.end()) {
    problems.push_back({std::move(problem), calls, 0, 0});
  } else {
    same->calls += calls;
  }
}

void add_shares(std::vector<ModelProblem>& problems) {
  static const DeviceInfo kDevice = h200_facts();
  double pass_us = 0;
  for (ModelProblem& p : problems) {
    const auto floor =
        floor_of(p.problem->op().demand(*p.problem, kDevice), kDevice, Residency::kCold);
    p.floor_us = floor ? floor->us : 0;
    pass_us += p.floor_us * static_cast<double>(p.calls);
  }
  if (pass_us <= 0) return;
  for (ModelProblem& p : problems) p.share = p.floor_us * static_cast<double>(p.calls) / pass_us;
}

// "vit_base_patch16_224 b32 (12x)", "vit_base_patch16_224 norm #2 b32 (1x)".
std::string problem_name(const Model& model, const ModelProblem& problem, std::int64_t images,
                         int number, int count) {
  const std::string of = problem.problem->operator_name();
  return formatted("{}{}{} b{} ({}x)", model.name, of == kModelOperator ? "" : " " + of,
                   count == 1 ? "" : formatted(" #{}", number), images, problem.calls);
}

// What is not taken of an operator's calls.
struct LeftOut {
  std::int64_t calls = 0, all = 0;
  std::vector<std::string> reasons;
  void add(const std::string& reason, std::int64_t count) {
    calls += count;
    reasons.push_back(formatted("{} ({}x)", reason, count));
  }
};

}  // namespace

std::string call_text(const OtherCall& call, std::int64_t images, ElementType dtype) {
  constexpr std::string_view kImages = "*images", kType = "dtype";
  std::string text = call.text;
  // A word of its own, and a bias' type ("bias=dtype:1x3x49x49").
  for (auto at = text.find(kType); at != std::string::npos; at = text.find(kType, at + 1)) {
    text.replace(at, kType.size(), element_name(dtype));
  }
  for (auto end = text.find(kImages); end != std::string::npos; end = text.find(kImages)) {
    auto begin = text.find_last_not_of("0123456789", end - 1);
    begin = begin == std::string::npos ? 0 : begin + 1;
    std::int64_t each = 0;
    const auto read = std::from_chars(text.data() + begin, text.data() + end, each);
    if (read.ec != std::errc{}) {
      throw Error(ErrorCode::kFailure, formatted("'{}' has a number beyond 64 bits", call.text));
    }
    text.replace(begin, end + kImages.size() - begin, std::to_string(times_images(each, images)));
  }
  return text;
}

std::vector<ModelProblem> model_problems(const Model& model, std::int64_t images,
                                         ElementType dtype) {
  std::vector<ModelProblem> problems;
  for (const ModelCall& call : model.calls) {
    if (!call.unsupported.empty()) continue;
    add_calls(problems, scaled(call, images, dtype),
              times_images(call.calls, call.each_image ? images : 1));
  }
  for (const OtherCall& call : model.others) {
    if (find_operator(call.operator_name()) == nullptr || refusal(call)) continue;
    add_calls(problems, parse_problem(call_text(call, images, dtype)), call.calls);
  }
  add_shares(problems);
  return problems;
}

std::vector<NamedProblem> named_model_problems(const Model& model, std::int64_t images,
                                               const ModelInput& input) {
  const std::vector<ModelProblem> problems = model_problems(model, images, input.dtype);
  std::map<std::string, int> count, number;
  for (const ModelProblem& problem : problems) ++count[problem.problem->operator_name()];
  std::vector<NamedProblem> named;
  for (const ModelProblem& problem : problems) {
    const std::string of = problem.problem->operator_name();
    if (!is_asked(input, of)) continue;
    named.push_back({problem_name(model, problem, images, ++number[of], count[of]),
                     model.name,
                     problem.problem,
                     {},
                     {},
                     problem.share});
  }
  std::ranges::stable_sort(named, std::greater{}, &NamedProblem::share);
  return named;
}

std::string unsupported_calls(const Model& model, const ModelInput& input) {
  std::map<std::string, LeftOut> left_out;
  for (const ModelCall& call : model.calls) {
    LeftOut& of = left_out[kModelOperator];
    of.all += call.calls;
    if (!call.unsupported.empty()) of.add(call.unsupported, call.calls);
  }
  for (const OtherCall& call : model.others) {
    if (find_operator(call.operator_name()) == nullptr) continue;
    LeftOut& of = left_out[call.operator_name()];
    of.all += call.calls;
    if (const auto why = refusal(call)) of.add(*why, call.calls);
  }
  std::vector<std::string> sentences;
  for (const auto& [name, of] : left_out) {
    if (of.calls == 0 || !is_asked(input, name)) continue;
    sentences.push_back(formatted("{} of the {} {} calls of {} are outside what the kernels do: {}",
                                  of.calls, of.all, name, model.name, joined(of.reasons, "; ")));
  }
  return joined(sentences, ". ");
}

std::string calls_without_operator(const std::vector<const Model*>& models) {
  std::map<std::string, std::int64_t> counts;
  for (const Model* model : models) {
    for (const OtherCall& call : model->others) {
      if (find_operator(call.operator_name()) == nullptr) {
        counts[call.operator_name()] += call.calls;
      }
    }
  }
  if (counts.empty()) return "";
  std::vector<std::string> parts;
  for (const auto& [name, calls] : counts) parts.push_back(formatted("{} of {}", calls, name));
  return formatted(
      "calls of operators that vitune does not have are left out: {}, in one pass of {}",
      joined(parts, ", "),
      models.size() == 1 ? models.front()->name : formatted("each of {} models", models.size()));
}

}  // namespace vitune
