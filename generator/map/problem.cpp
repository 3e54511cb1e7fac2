// generator/map/problem.cpp -- What of a map is valid, and its canonical form.
// SPDX-License-Identifier: Apache-2.0
#include "generator/map/problem.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/checked.h"
#include "core/format.h"
#include "generator/problem_checks.h"

namespace vitune {
namespace {

constexpr std::size_t kMostResultRank = 6, kMostReducedRank = 3, kMostMemoryRank = 4;
constexpr std::int64_t kMostElements =
    (std::int64_t{1} << 31) - 1;                            // kernels count them in 32 bits
constexpr std::int64_t kMostBytes = std::int64_t{1} << 47;  // exclusive, per tensor

std::string operand_name(std::size_t place) { return std::string(1, kMapLetters[place]); }

// The product of extents, which is at most `kMostElements`.
void check_elements(const std::string& name, const std::vector<std::int64_t>& extents,
                    std::size_t first, std::size_t last) {
  std::int64_t product = 1;
  for (std::size_t i = first; i < last; ++i) {
    check_count(name, extents[i], kMostElements);
    product *= extents[i];
    if (product <= kMostElements) continue;
    refuse(ErrorCode::kUnsupported,
           formatted("{}= has more than 2^31 - 1 elements: use several maps", name));
  }
}

void check_span(const std::string& name, const MapOperand& operand,
                const std::vector<std::int64_t>& extents) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (operand.strides[i] < 0) {
      refuse(ErrorCode::kUsage, formatted("{}: stride {} is negative", name, operand.strides[i]));
    }
    if (operand.strides[i] > kMostElements) {
      refuse(ErrorCode::kUnsupported,
             formatted("{}: stride {} is above 2^31 - 1: use a smaller one", name,
                       operand.strides[i]));
    }
    const std::int64_t reach = (extents[i] - 1) * operand.strides[i];
    last = std::min(last + reach, kMostBytes);
  }
  if (last < kMostBytes / element_bytes(operand.type)) return;
  refuse(ErrorCode::kUnsupported,
         formatted("{} spans 2^47 bytes or more: use smaller strides", name));
}

void check_memory(const std::string& name, const MapMemory& memory) {
  if (memory.extents.size() <= kMostMemoryRank) return;
  refuse(ErrorCode::kUnsupported,
         formatted("{} lies in memory with {} separate dimensions, where {} are the most: copy it "
                   "to neighbouring elements first",
                   name, memory.extents.size(), kMostMemoryRank));
}

// No element of the result may be written twice: each stride goes beyond all that lies inside it.
void check_distinct(const MapProblem& p) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride, extent
  for (std::size_t i = 0; i < p.out_rank(); ++i) {
    if (p.extents[i] > 1) dimensions.emplace_back(p.out.strides[i], p.extents[i]);
  }
  std::ranges::sort(dimensions);
  std::int64_t reach = 0;
  for (const auto& [stride, extent] : dimensions) {
    if (stride <= reach) {
      refuse(
          ErrorCode::kUsage,
          formatted("out: elements overlap at a stride of {}: it must be above {}", stride, reach));
    }
    reach += (extent - 1) * stride;
  }
}

void check_expressions(const MapProblem& p) {
  std::string given;
  for (std::size_t i = 0; i < kMapOperands; ++i) {
    if (p.operands[i]) given += kMapLetters[i];
  }
  const std::string used = p.x.letters();
  if (used.empty()) refuse(ErrorCode::kUsage, "x: the expression has no operand");
  for (const char letter : used + given) {
    if (given.find(letter) == given.npos) {
      refuse(ErrorCode::kUsage,
             formatted("x has the operand {}, but {}= is missing: give its type, {}=bf16", letter,
                       letter, letter));
    }
    if (used.find(letter) == used.npos) {
      refuse(ErrorCode::kUsage, formatted("{}= is given, but x does not have it", letter));
    }
  }
  if (p.constants().size() > kMostMapConstants) {
    refuse(ErrorCode::kUnsupported,
           formatted("x and y have more than {} different constants: use two maps",
                     kMostMapConstants));
  }
  if (!p.y) return;
  if (p.reduction == kMapNone) {
    refuse(ErrorCode::kUsage, "y is of what is reduced: put it into x, or name sum, mean or max");
  }
  if (p.y->letters() != "r") refuse(ErrorCode::kUsage, "y: the expression does not have r");
}

// Leaves out dimension `i`, or lets the one after it stand for both.
void erase_dimension(MapProblem& p, std::size_t i) {
  const auto at = static_cast<std::ptrdiff_t>(i);
  p.extents.erase(p.extents.begin() + at);
  for (auto& operand : p.operands) {
    if (operand) operand->strides.erase(operand->strides.begin() + at);
  }
  p.out.strides.erase(p.out.strides.begin() + at);
  if (i < p.results) --p.results;
}

bool are_one(const MapProblem& p, std::size_t i) {
  if (i + 1 == p.results || i + 1 >= p.rank()) return false;
  const auto follows = [&](const MapOperand& operand) {
    return operand.strides[i] == operand.strides[i + 1] * p.extents[i + 1];
  };
  return follows(p.out) && std::ranges::all_of(p.operands, [&](const auto& operand) {
           return !operand || follows(*operand);
         });
}

std::int64_t product_of(const std::vector<std::int64_t>& extents, std::size_t first,
                        std::size_t last) {
  return std::accumulate(extents.begin() + static_cast<std::ptrdiff_t>(first),
                         extents.begin() + static_cast<std::ptrdiff_t>(last), std::int64_t{1},
                         std::multiplies<>());
}

}  // namespace

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& extents,
                                        std::size_t count) {
  std::vector<std::int64_t> strides(extents.size(), 0);
  std::int64_t next = 1;
  for (std::size_t i = count; i-- > 0;) {
    strides[i] = next;
    // Extents that are too large are refused with a sentence of their own.
    next = checked_mul(next, extents[i]).value_or(0);
  }
  return strides;
}

MapMemory operand_memory(const std::vector<std::int64_t>& extents,
                         const std::vector<std::int64_t>& strides) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride, extent
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] > 1 && strides[i] > 0) dimensions.emplace_back(strides[i], extents[i]);
  }
  std::ranges::sort(dimensions);
  MapMemory memory;
  for (const auto& [stride, extent] : dimensions) {
    const bool joins = !memory.strides.empty() && stride % memory.strides.front() == 0 &&
                       stride <= memory.strides.front() * memory.extents.front();
    if (joins) {
      memory.extents.front() += (extent - 1) * (stride / memory.strides.front());
    } else {
      memory.extents.insert(memory.extents.begin(), extent);
      memory.strides.insert(memory.strides.begin(), stride);
    }
  }
  return memory;
}

MapMemory result_memory(const std::vector<std::int64_t>& extents,
                        const std::vector<std::int64_t>& strides) {
  MapMemory memory;
  for (std::size_t i = extents.size(); i-- > 0;) {
    if (extents[i] == 1 || strides[i] == 0) continue;
    if (!memory.strides.empty() && strides[i] == memory.strides.front() * memory.extents.front()) {
      memory.extents.front() *= extents[i];
    } else {
      memory.extents.insert(memory.extents.begin(), extents[i]);
      memory.strides.insert(memory.strides.begin(), strides[i]);
    }
  }
  return memory;
}

void MapProblem::validate() const {
  const std::size_t reduced = rank() - results;
  if (results < 1 || results > kMostResultRank || reduced > kMostReducedRank) {
    refuse(ErrorCode::kUnsupported, "n= has 1 to 6 extents, and over= 1 to 3");
  }
  if ((reduction == kMapNone) != (reduced == 0)) {
    refuse(ErrorCode::kUsage, reduced == 0 ? "a reduction needs over=, the extents that are reduced"
                                           : "over= needs one of sum, mean, max and softmax");
  }
  check_elements("n", extents, 0, results);
  check_elements("over", extents, results, rank());
  if (alignment != 1 && alignment != 2 && alignment != 4 && alignment != 8 && alignment != 16) {
    refuse(ErrorCode::kUsage, formatted("align={}: use 1, 2, 4, 8 or 16", alignment));
  }
  if (out.type == ElementType::kBool || out.type == ElementType::kU8) {
    refuse(ErrorCode::kUnsupported,
           formatted("out={}: use bf16, fp16 or fp32", element_name(out.type)));
  }
  check_expressions(*this);
  check_span("out", out, extents);
  check_distinct(*this);
  check_memory("out", result_memory(extents, out.strides));
  for (std::size_t i = 0; i < kMapOperands; ++i) {
    if (!operands[i]) continue;
    check_span(operand_name(i), *operands[i], extents);
    check_memory(operand_name(i), operand_memory(extents, operands[i]->strides));
  }
}

MapProblem MapProblem::canonical() const {
  MapProblem p = *this;
  for (std::size_t i = p.rank(); i-- > 0;) {
    const bool is_alone = i < p.results ? p.results == 1 : p.rank() - p.results == 1;
    if (p.extents[i] == 1 && !is_alone) erase_dimension(p, i);
  }
  for (std::size_t i = p.rank(); i-- > 0;) {
    if (!are_one(p, i)) continue;
    p.extents[i + 1] *= p.extents[i];
    erase_dimension(p, i);
  }
  // The stride of a single entry is any.
  const auto dense = dense_strides(p.extents, p.rank());
  const auto dense_out = dense_strides(p.extents, p.out_rank());
  for (std::size_t i = 0; i < p.rank(); ++i) {
    if (p.extents[i] != 1) continue;
    for (auto& operand : p.operands) {
      if (operand) operand->strides[i] = dense[i];
    }
    p.out.strides[i] = dense_out[i];
  }
  if (p.y && p.y->steps() == 0) p.y.reset();
  return p;
}

std::vector<float> MapProblem::constants() const {
  std::vector<float> found;
  const auto add = [&](const Expression& expression) {
    for (const ExpressionPart& part : expression.parts()) {
      const bool is_new = part.kind == ExpressionPart::Kind::kConstant &&
                          std::ranges::find(found, part.value) == found.end();
      if (is_new) found.push_back(part.value);
    }
  };
  add(x);
  if (y) add(*y);
  return found;
}

std::int64_t MapProblem::result_count() const { return product_of(extents, 0, results); }
std::int64_t MapProblem::reduced_count() const { return product_of(extents, results, rank()); }

double MapProblem::flops() const {
  const double results_of = static_cast<double>(result_count());
  const double elements = results_of * static_cast<double>(reduced_count());
  double steps = x.steps();
  if (reduction != kMapNone) steps += 1;
  if (reduction == kMapSoftmax) steps += 4;  // less the largest, exponential, sum, quotient
  const double behind = y ? y->steps() : 0;
  return std::max(elements * steps + behind * (reduction == kMapSoftmax ? elements : results_of),
                  results_of);
}

double MapProblem::min_bytes() const {
  const auto bytes = [&](const MapOperand& operand) {
    double count = static_cast<double>(element_bytes(operand.type));
    for (const std::int64_t extent : operand_memory(extents, operand.strides).extents) {
      count *= static_cast<double>(extent);
    }
    return count;
  };
  double sum = bytes(out);
  for (const auto& operand : operands) sum += operand ? bytes(*operand) : 0;
  return sum;
}

}  // namespace vitune
