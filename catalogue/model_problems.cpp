// catalogue/model_problems.cpp -- From the calls of a model to the problems of so many images.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/model_problems.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "catalogue/model_files.h"
#include "catalogue/predicted_floor.h"
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

// Where a program calls PyTorch's attention, the result lies as PyTorch's own: as q, which matters
// where q has heads outside of rows.
bool has_heads_outside(const AttentionProblem& problem) {
  return problem.q == bhnd_strides(problem.heads, problem.nq, problem.d) && problem.heads > 1 &&
         problem.nq > 1;
}

AttentionProblem scaled(const ModelCall& call, std::int64_t images, ElementType dtype) {
  AttentionProblem problem = call.traced;
  if (has_heads_outside(problem)) problem.o = problem.q;
  problem.dtype = dtype;
  if (!call.each_image) problem.batch = times_images(call.traced.batch / kTracedImages, images);
  for (auto* operand : {&problem.bias, &problem.mask}) {
    if (*operand) *operand = scaled_operand(**operand, call.traced, problem.batch, dtype);
  }
  problem.validate();
  return problem.canonical();
}

// A problem once, with the calls of all places that ask it; a second choice is one that no place
// asks first.
void add_calls(std::vector<ModelProblem>& problems, ProblemPtr problem, std::int64_t calls,
               bool is_second) {
  // Calls that differ for two images may be the same for one: their strides of b do not matter.
  const auto same = std::ranges::find_if(
      problems, [&](const ModelProblem& known) { return is_same(*known.problem, *problem); });
  if (same == problems.end()) {
    problems.push_back({std::move(problem), calls, 0, 0, is_second});
  } else if (same->is_second == is_second) {
    same->calls += calls;
  }
}

void add_attention(const Model& model, std::int64_t images, ElementType dtype,
                   std::vector<ModelProblem>& problems) {
  for (const ModelCall& call : model.calls) {
    if (!call.unsupported.empty()) continue;
    add_calls(problems, scaled(call, images, dtype),
              times_images(call.calls, call.each_image ? images : 1), false);
  }
}

// "m=" of a text; 0 if it has none.
std::int64_t rows_of(const std::string& text) {
  constexpr std::string_view kRows = " m=";
  std::int64_t rows = 0;
  if (const auto at = text.find(kRows); at != std::string::npos) {
    std::from_chars(text.data() + at + kRows.size(), text.data() + text.size(), rows);
  }
  return rows;
}

void add_asked(const std::vector<AskedCall>& calls, std::int64_t images, ElementType dtype,
               std::vector<ModelProblem>& problems) {
  for (const AskedCall& call : calls) {
    const std::string text = call_text(call, images, dtype);
    const Rows other = rows_of(text) > call.few_rows ? Rows::kFew : Rows::kMany;
    if (call.rows == other) continue;
    add_calls(problems, parse_problem(text), times_images(call.calls, call.each_image ? images : 1),
              call.is_second);
  }
}

// But for the attention of a drop-in, which has a list of its own.
const std::vector<AskedCall>& asked_calls(const Model& model, AskedBy asked_by) {
  switch (asked_by) {
    case AskedBy::kTrain:
      return model.trained;
    case AskedBy::kDropIn:
      return model.norms;
    case AskedBy::kCompile:
      break;
  }
  return model.compiled;
}

// The floors of all calls of a problem.
double pass_us(const ModelProblem& problem) {
  return problem.floor_us * static_cast<double>(problem.calls);
}

// "vit_base_patch16_224 b32 (12x)", "vit_base_patch16_224 norm #2 b32 (1x)".
std::string problem_name(const std::string& group, const ModelProblem& problem, std::int64_t images,
                         int number, int count) {
  const std::string of = problem.problem->operator_name();
  return formatted("{}{}{} b{} ({}x)", group, of == kModelOperator ? "" : " " + of,
                   count == 1 ? "" : formatted(" #{}", number), images, problem.calls);
}

// Calls of an operator that are not taken.
struct LeftOut {
  std::int64_t calls = 0, all = 0;
  std::vector<std::string> reasons;
  void add(const std::string& reason, std::int64_t count) {
    calls += count;
    reasons.push_back(formatted("{} ({}x)", reason, count));
  }
};

// Writes the product for each "N*images". Throws Error(kUnsupported) where it leaves 64 bits.
void fill_in_images(std::string& text, std::int64_t images) {
  constexpr std::string_view kImages = "*images";
  for (auto end = text.find(kImages); end != std::string::npos; end = text.find(kImages)) {
    auto begin = text.find_last_not_of("0123456789", end - 1);
    begin = begin == std::string::npos ? 0 : begin + 1;
    std::int64_t each = 0;
    const auto read = std::from_chars(text.data() + begin, text.data() + end, each);
    if (read.ec != std::errc{}) {
      throw Error(ErrorCode::kFailure, formatted("'{}' has a number beyond 64 bits", text));
    }
    text.replace(begin, end + kImages.size() - begin, std::to_string(times_images(each, images)));
  }
}

}  // namespace

std::string call_text(const AskedCall& call, std::int64_t images, ElementType dtype) {
  constexpr std::string_view kType = "dtype";
  std::string text = call.text;
  // A word of its own, and a bias' type ("bias=dtype:1x3x49x49").
  for (auto at = text.find(kType); at != std::string::npos; at = text.find(kType, at + 1)) {
    text.replace(at, kType.size(), element_name(dtype));
  }
  fill_in_images(text, images);
  return text;
}

std::vector<ModelProblem> model_problems(const Model& model, std::int64_t images, ElementType dtype,
                                         AskedBy asked_by) {
  std::vector<ModelProblem> problems;
  if (asked_by == AskedBy::kDropIn) add_attention(model, images, dtype, problems);
  add_asked(asked_calls(model, asked_by), images, dtype, problems);
  add_shares(problems);
  return problems;
}

void add_shares(std::vector<ModelProblem>& problems) {
  double sum_us = 0;
  for (ModelProblem& p : problems) {
    p.floor_us = h200_floor_us(*p.problem);
    sum_us += p.is_second ? 0 : pass_us(p);
  }
  if (sum_us <= 0) return;
  for (ModelProblem& p : problems) p.share = p.is_second ? 0 : pass_us(p) / sum_us;
}

void sort_by_share(std::vector<ModelProblem>& problems) {
  std::ranges::stable_sort(problems, [](const ModelProblem& a, const ModelProblem& b) {
    return a.is_second == b.is_second ? pass_us(a) > pass_us(b) : b.is_second;
  });
}

std::vector<NamedProblem> named_model_problems(const Model& model, std::int64_t images,
                                               const ModelInput& input) {
  return named_problems(model.name, model_problems(model, images, input.dtype, input.asked_by),
                        images, input);
}

std::vector<NamedProblem> named_problems(const std::string& group,
                                         std::vector<ModelProblem> problems, std::int64_t images,
                                         const ModelInput& input) {
  std::map<std::string, int> count;
  std::map<const Problem*, int> number;
  for (const ModelProblem& p : problems) number[&*p.problem] = ++count[p.problem->operator_name()];
  sort_by_share(problems);
  std::vector<NamedProblem> named;
  for (const ModelProblem& problem : problems) {
    const std::string of = problem.problem->operator_name();
    if (!is_asked(input, of)) continue;
    named.push_back({problem_name(group, problem, images, number[&*problem.problem], count[of]),
                     group,
                     problem.problem,
                     {},
                     {},
                     problem.share});
  }
  return named;
}

std::string unsupported_calls(const Model& model, const ModelInput& input) {
  if (input.asked_by == AskedBy::kTrain) {
    if (!model.trained.empty()) return "";
    return formatted(
        "what {} asks in training is not in the catalogue: vitune.tune(model, images, train=True) "
        "tunes what a step of it asks",
        model.name);
  }
  std::map<std::string, LeftOut> left_out;
  if (input.asked_by == AskedBy::kDropIn) {
    for (const ModelCall& call : model.calls) {
      left_out[kModelOperator].all += call.calls;
      if (!call.unsupported.empty()) left_out[kModelOperator].add(call.unsupported, call.calls);
    }
  } else {
    for (const AskedCall& call : model.compiled) {
      // Counts a layer once that is asked otherwise with many rows.
      if (call.is_second || call.rows == Rows::kMany) continue;
      left_out[call.operator_name()].all += call.calls;
    }
    for (const OutsideCall& call : model.outside) {
      if (call.reason.empty()) continue;
      left_out[call.operator_name].all += call.calls;
      left_out[call.operator_name].add(call.reason, call.calls);
    }
  }
  std::vector<std::string> sentences;
  for (const auto& [name, of] : left_out) {
    if (of.calls == 0 || !is_asked(input, name)) continue;
    sentences.push_back(formatted("{} of the {} {} calls of {} are outside what the kernels do: {}",
                                  of.calls, of.all, name, model.name, joined(of.reasons, "; ")));
  }
  return joined(sentences, ". ");
}

std::string calls_without_operator(const std::vector<const Model*>& models, AskedBy asked_by) {
  if (asked_by != AskedBy::kCompile) return "";  // of the others nothing is recorded
  std::map<std::string, std::int64_t> counts;
  for (const Model* model : models) {
    for (const OutsideCall& call : model->outside) {
      if (call.reason.empty()) counts[call.operator_name] += call.calls;
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
