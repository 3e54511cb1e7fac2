// generator/map/judge.cpp -- How kernels of maps are tried, and who knows the right answer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <iterator>

#include "core/checked.h"
#include "core/error.h"
#include "generator/map/kernel_spec.h"
#include "templates/map/params.cuh"
#include "templates/reference/map_judge_params.cuh"

namespace vitune {
namespace {

constexpr char kPositive[] = "positive";

constexpr std::uint32_t at_operand(std::size_t place) {
  return static_cast<std::uint32_t>(offsetof(MapJudgeParams, call) + offsetof(MapParams, in) +
                                    sizeof(void*) * place);
}

// As the judge walks through it; its constants join those that are there.
MapProgram program_of(const Expression& expression, std::string_view letters,
                      const std::vector<float>& constants) {
  MapProgram program = {};
  for (const ExpressionPart& part : expression.parts()) {
    int code = part.word;
    if (part.kind == ExpressionPart::Kind::kLetter) {
      code = MapProgram::kLetter + static_cast<int>(letters.find(part.letter));
    } else if (part.kind == ExpressionPart::Kind::kConstant) {
      const auto at = std::ranges::find(constants, part.value) - constants.begin();
      code = MapProgram::kConstant + static_cast<int>(at);
    }
    program.codes[program.parts++] = static_cast<unsigned char>(code);
  }
  return program;
}
// Words have three arguments at most.
static_assert(3 * kMostExpressionSteps + 1 <= MapProgram::kMostParts);
static_assert(kMostMapConstants == MapJudgeParams::kMostConstants);

// The type that a model rounds its steps to: fp32 as soon as one operand is, else the type of them
// all.
int rounding_of(const MapProblem& p) {
  const ElementType type = p.out.type;
  for (const auto& operand : p.operands) {
    const bool is_number =
        operand && operand->type != ElementType::kBool && operand->type != ElementType::kU8;
    if (is_number && operand->type != type) return kMapFp32;
  }
  if (type == ElementType::kFp32) return kMapFp32;
  return type == ElementType::kBf16 ? kMapBf16 : kMapFp16;
}

MapJudgeParams judge_params(const MapProblem& p) {
  MapJudgeParams params = {};
  params.call.results = static_cast<unsigned>(p.result_count());
  const auto narrow = [](std::int64_t value) { return static_cast<unsigned>(value); };
  std::ranges::transform(p.extents, params.extents, narrow);
  for (std::size_t k = 0; k <= kMapOperands; ++k) {
    const MapOperand* const operand = k == kMapOperands ? &p.out
                                      : p.operands[k]   ? &*p.operands[k]
                                                        : nullptr;
    params.types[k] = -1;
    if (operand == nullptr) continue;
    params.types[k] = static_cast<signed char>(judge_type(operand->type));
    std::ranges::transform(operand->strides, params.strides[k], narrow);
  }
  params.rank = static_cast<int>(p.rank());
  params.results = static_cast<int>(p.results);
  params.reduction = p.reduction;
  params.rounding = rounding_of(p);
  const std::vector<float> constants = p.constants();
  std::ranges::copy(constants, params.constants);
  params.x = program_of(p.x, kMapLetters, constants);
  params.y = program_of(p.y.value_or(Expression::parse("r", "r", "y")), "r", constants);
  return params;
}

// The same with another outermost extent, as far as kernels are the same: those count results.
MapProblem with_outermost(const MapProblem& p, std::int64_t extent) {
  MapProblem edge = p;
  edge.extents.front() = extent;
  return edge;
}

}  // namespace

std::vector<std::string> map_judge_entries() {
  return {"vitune_map_reference", "vitune_map_plain"};
}

LaunchPlan map_answer(const MapProblem& p, Precision precision) {
  constexpr std::int64_t kThreads = 256, kMostCtas = 16384;
  const std::int64_t lanes = p.reduction == kMapNone ? 1 : 32;
  KernelLaunch launch;
  launch.kernel = precision == Precision::kExact ? 0 : 1;
  launch.shape.grid[0] =
      static_cast<std::uint32_t>(std::min(ceil_div(p.result_count(), kThreads / lanes), kMostCtas));
  launch.shape.block[0] = kThreads;
  launch.params = parameter_bytes(judge_params(p));
  for (std::size_t i = 0; i < kMapOperands; ++i) {
    if (p.operands[i]) launch.pointers.push_back({static_cast<int>(i), at_operand(i)});
  }
  launch.pointers.push_back({kMapOut, static_cast<std::uint32_t>(offsetof(MapJudgeParams, call) +
                                                                 offsetof(MapParams, out))});
  launch.pointers.push_back({kMapTensors + kMapOut, offsetof(MapJudgeParams, answer)});
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

std::vector<JudgeCase> map_cases(const MapProblem& p, const Config& config) {
  std::vector<JudgeCase> cases;
  // One entry, or vector; a CTA that lacks some of its results.
  const bool runs_along_results = p.reduction == kMapNone || config.at("kAcross") != 0;
  const std::int64_t unit = runs_along_results && p.results == 1 ? config.at("kVector") : 1;
  const std::int64_t entry = p.result_count() / p.extents.front();
  const std::int64_t full = ceil_div(map_cta_results(p, config), std::max<std::int64_t>(entry, 1));
  for (const std::int64_t extent : {unit, (full / unit + 1) * unit}) {
    if (extent < p.extents.front()) cases.push_back({with_outermost(p, extent), kNormalDraw});
  }
  const ProblemPtr whole = p;
  cases.push_back({whole, kPositive});
  cases.push_back({whole, kNormalDraw});
  return cases;
}

// Normal numbers, or positive ones, of which all have a logarithm and a root.
std::vector<Fill> map_inputs(const MapProblem& p, const std::string& draw) {
  if (draw != kNormalDraw && draw != kPositive) {
    throw Error(ErrorCode::kFailure, "maps have no inputs of the name '" + draw + "'");
  }
  const bool is_positive = draw == kPositive;
  const std::vector<TensorSpec> tensors = map_tensors(p);
  std::vector<Fill> fills;
  for (int i = 0; i < kMapOut; ++i) {
    const TensorSpec& target = tensors[static_cast<std::size_t>(i)];
    if (!target.given) continue;
    Fill whole;
    whole.tensor = i;
    whole.extents = target.extents;
    whole.seed = 0x6d6170u * 32 + (is_positive ? 16 : 0) + static_cast<std::uint64_t>(i);
    whole.mean = target.type == ElementType::kU8 ? 128 : is_positive ? 1.5 : 0;
    whole.deviation = target.type == ElementType::kU8 ? 64 : is_positive ? 0.25 : 1;
    fills.push_back(whole);
  }
  return fills;
}

}  // namespace vitune
