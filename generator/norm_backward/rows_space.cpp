// generator/norm_backward/rows_space.cpp -- Which configs norms' gradients have, and which are
// likely to be good.
// SPDX-License-Identifier: Apache-2.0
#include "generator/norm_backward/rows_space.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "core/checked.h"
#include "core/format.h"
#include "generator/norm_backward/kernel_spec.h"
#include "generator/norm_backward/rows.h"

namespace vitune {
namespace {

using Shape = NormBackwardShape;

constexpr std::int64_t kRowThreads[] = {4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024};

// True if some threads would have no columns although fewer could hold the row.
bool is_idle(const Shape& s) {
  const std::int64_t vectors = ceil_div(s.columns, s.vector);
  const auto enough = std::lower_bound(std::begin(kRowThreads), std::end(kRowThreads), vectors);
  return enough != std::end(kRowThreads) && s.row_threads > *enough;
}

// The widest access, and half of it: each thread of a wide row has less then.
std::vector<std::int64_t> vectors_of(const NormBackwardProblem& p) {
  const std::int64_t widest = norm_backward_vector(p);
  if (widest == 1) return {1};
  return {widest / 2, widest};
}

// The access of which no tensor's is wider than 16 bytes: neighbouring threads then read
// neighbouring bytes.
std::int64_t good_vector(const NormBackwardProblem& p) {
  const bool has_fp32 = p.type == ElementType::kFp32 || p.stream == ElementType::kFp32;
  return std::min<std::int64_t>(norm_backward_vector(p), has_fp32 ? 4 : 8);
}

}  // namespace

const Tunables<NormBackwardShape>& norm_backward_tunables() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::row_threads,
       {"kRowThreads",
        {std::begin(kRowThreads), std::end(kRowThreads)},
        "threads that share a row",
        false,
        true}},
      {&Shape::rows,
       {"kRows", {1, 2, 4, 8, 16, 32}, "rows that a CTA has at work at once", false, true}},
      {&Shape::vector, {"kVector", {1, 2, 4, 8}, "elements of an access", false, true}},
      {&Shape::ahead,
       {"kAhead", {0, 1}, "a row is asked for before the last one is written", false, true}},
      {&Shape::ctas,
       {"kCtas",
        {1, 2, 3, 4, 5, 6, 8, 12, 16},
        "CTAs of an SM that registers leave room for",
        false,
        true}},
      {&Shape::streaming, {"kStreaming", {0, 1}, "L2 need not keep the inputs", true, true}},
  };
  return all;
}

NormBackwardShape::NormBackwardShape(const NormBackwardProblem& p) : NormBackwardRows{} {
  // Values that no rule reads before they are set.
  row_threads = 32;
  rows = vector = ctas = 1;
  columns = static_cast<int>(p.d);
  dy_bytes = static_cast<int>(element_bytes(p.type));
  x_bytes = static_cast<int>(element_bytes(p.stream));
  weight_bytes = p.weight ? static_cast<int>(element_bytes(p.parameters)) : 0;
  residual = p.residual ? 1 : 0;
  column_sums = p.column_sums();
  row_sums = 1 + (p.rms ? 0 : 1) + (p.statistics ? 0 : 1);
}

NormBackwardShape::NormBackwardShape(const NormBackwardProblem& p, const Config& config)
    : NormBackwardShape(read_tunables(norm_backward_tunables(), config, NormBackwardShape(p))) {}

std::vector<Parameter> norm_backward_parameters(const NormBackwardProblem& problem) {
  std::vector<Parameter> parameters = parameters_of(norm_backward_tunables());
  for (Parameter& parameter : parameters) {
    if (parameter.name == "kVector") parameter.values = vectors_of(problem);
  }
  return parameters;
}

std::vector<Constraint> norm_backward_rules(const NormBackwardProblem& problem,
                                            const DeviceInfo& device) {
  const Tunables<Shape>& all = norm_backward_tunables();
  const Shape facts(problem);
  std::vector<Constraint> rules = geometry_rules(norm_backward_rows_rules().all, all, facts);
  rules.push_back(shape_rule<Shape>(
      "each thread has columns, as far as threads come in these numbers", all, facts,
      {&Shape::row_threads, &Shape::vector}, [](const Shape& s) { return !is_idle(s); }));
  rules.push_back(shape_rule<Shape>(
      "shared memory: sums of columns and of rows <= bytes per block", all, facts,
      {&Shape::row_threads, &Shape::rows, &Shape::vector},
      [shared = device.shared_per_block](const Shape& s) { return s.shared_bytes() <= shared; },
      [](const Shape& s) { return formatted("{} bytes", s.shared_bytes()); }));
  return rules;
}

// Not measured yet: what memory asks for. A thread has about eight values of a row, four where
// there are few rows; no thread is idle; the next rows are on their way, so many bytes that an SM
// waits for none; and few CTAs leave parts to add.
std::optional<double> norm_backward_rank(const NormBackwardProblem& p, const Config& config,
                                         const DeviceInfo& device) {
  constexpr int kManyRows = 8;        // of an SM
  constexpr double kEnough = 40'000;  // bytes on their way to an SM
  const Shape s(p, config);
  if (s.streaming != 0) return std::nullopt;
  const auto over = [](int value, int most) {
    return static_cast<double>(std::max(value - most, 0));
  };
  const std::int64_t sms = std::max(device.sm_count, 1);
  const int wanted = p.rows >= kManyRows * sms ? 8 : 4;
  const double idle = static_cast<double>(s.pieces() * s.step()) / s.columns - 1;
  const double ahead = s.ahead != 0 ? 1 : 0.5;  // of the bytes of all rows at work
  const double asked = ahead * s.row_bytes() * s.columns * s.rows * s.ctas;
  return 40 * idle + 20 * std::max(1 - asked / kEnough, 0.0) + 1.5 * over(s.values(), wanted) +
         over(wanted, s.values()) + over(s.pieces(), 4) + over(s.threads(), 256) / 64 +
         over(128, s.threads()) / 32 +
         over(s.registers() + s.values(), s.registers_there_are()) / 4 +
         (s.vector == good_vector(p) ? 0 : 3) + s.ctas / 2.0;
}

}  // namespace vitune
