// generator/map/source.cpp -- A map's kernel as text: its expression, and where its elements lie.
//
// Written from the problem's values alone.
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "core/format.h"
#include "generator/map/kernel_spec.h"

namespace vitune {
namespace {

using Kind = ExpressionPart::Kind;

// Exactly this number.
std::string constant_source(float value) {
  return formatted("__uint_as_float(0x{:08x}u)", std::bit_cast<std::uint32_t>(value));
}

// "quick_gelu" as "map_quick_gelu(...)".
std::string call_source(int word, const std::vector<std::string>& arguments) {
  return formatted("map_{}({})", expression_word(word), joined(arguments, ", "));
}

// A division by a constant that has a reciprocal, and whose quotients rarely leave fp32, takes no
// division. "": it is no such one.
std::string reciprocal_source(std::string_view word, const ExpressionPart& divisor,
                              const std::vector<std::string>& arguments) {
  const float size = std::abs(divisor.value);
  if (word != "div" || divisor.kind != Kind::kConstant || !(size > 0x1p-60f && size < 0x1p60f)) {
    return "";
  }
  return formatted("map_div_by({}, {})", joined(arguments, ", "),
                   constant_source(1 / divisor.value));
}

// The operands that are there, in order; out is the one behind them.
std::vector<std::size_t> given_operands(const MapProblem& p) {
  std::vector<std::size_t> given;
  for (std::size_t i = 0; i < kMapOperands; ++i) {
    if (p.operands[i]) given.push_back(i);
  }
  return given;
}

std::vector<const MapOperand*> given_tensors(const MapProblem& p) {
  std::vector<const MapOperand*> given;
  for (const std::size_t i : given_operands(p)) given.push_back(&*p.operands[i]);
  given.push_back(&p.out);
  return given;
}

// A function of a tensor's number, as a chain of choices.
template <class Value>
std::string choice(std::string_view head, std::size_t count, const Value& value) {
  std::string text = formatted("  static constexpr {} {{\n    return ", head);
  for (std::size_t i = 0; i + 1 < count; ++i) text += formatted("k == {} ? {} : ", i, value(i));
  return text + formatted("{};\n  }}\n", value(count - 1));
}

// How many neighbours of a dimension a thread has.
using Widths = std::vector<std::int64_t>;

// The places along dimensions `first` to `last` of element number `at`, counted in groups of
// neighbours.
std::string places(std::string_view name, const MapProblem& p, std::size_t first, std::size_t last,
                   const Widths& widths) {
  std::string text =
      formatted("  static __device__ __forceinline__ void {}(u32 at, u32 (&i)[kRank]) {{\n", name);
  for (std::size_t i = last; i-- > first;) {
    const std::string scale = widths[i] > 1 ? formatted(" * {}u", widths[i]) : "";
    if (i == first) {
      text += formatted("    i[{}] = at{};\n", i, scale);
    } else {
      const std::int64_t extent = p.extents[i] / widths[i];
      text += formatted("    i[{}] = at % {}u{};\n    at /= {}u;\n", i, extent, scale, extent);
    }
  }
  return text + "  }\n";
}

// An element's place in a tensor. Kernels do not know the outermost extent; what the other
// dimensions add is computed in 32 bits where it fits.
std::string place_in(const MapProblem& p, const MapOperand& tensor) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  std::string wide, narrow = "0u";
  std::int64_t last = 0;
  for (std::size_t i = 0; i < p.rank(); ++i) {
    const std::int64_t stride = tensor.strides[i];
    if (p.extents[i] == 1 || stride == 0) continue;
    const bool fits = i > 0 && stride <= (kMost - last) / (p.extents[i] - 1);
    if (fits) last += (p.extents[i] - 1) * stride;
    (fits ? narrow : wide) +=
        fits ? formatted(" + i[{}] * {}u", i, stride) : formatted("i64(i[{}]) * {} + ", i, stride);
  }
  return formatted("{}i64({})", wide, narrow);
}

std::string place_of(const MapProblem& p) {
  std::string text =
      "  template <int k>\n"
      "  static __device__ __forceinline__ i64 place(const u32 (&i)[kRank]) {\n";
  const std::vector<const MapOperand*> tensors = given_tensors(p);
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    text += formatted("    if constexpr (k == {}) return {};\n", k, place_in(p, *tensors[k]));
  }
  return text + "  }\n";
}

std::string expressions(const MapProblem& p) {
  const std::vector<std::size_t> given = given_operands(p);
  const auto operand = [&](char letter) {
    const std::size_t place = kMapLetters.find(letter);
    const auto at = std::find(given.begin(), given.end(), place) - given.begin();
    return formatted("v[{}]", at);
  };
  const auto r = [](char) { return std::string("r"); };
  return formatted(
      "  static __device__ __forceinline__ float x(const float (&v)[kOperands]) {{\n"
      "    return {};\n  }}\n"
      "  static __device__ __forceinline__ float y(float r) {{\n    return {};\n  }}\n",
      map_expression_source(p.x, operand), p.y ? map_expression_source(*p.y, r) : "r");
}

std::string numbers(const MapProblem& p, const Config& config) {
  std::string text;
  const auto number = [&](std::string_view name, std::int64_t value) {
    text += formatted("  static constexpr int {} = {};\n", name, value);
  };
  number("kOperands", static_cast<std::int64_t>(given_operands(p).size()));
  number("kRank", static_cast<std::int64_t>(p.rank()));
  number("kReduction", p.reduction);
  number("kReduced", p.reduced_count());
  number("kOut", judge_type(p.out.type));
  number("kAlong", static_cast<std::int64_t>(map_unrolled_dimension(p, config.at("kUnroll"))));
  for (const char* const name : {"kVector", "kThreads", "kRowThreads", "kUnroll", "kAcross"}) {
    number(name, config.at(name));
  }
  return text;
}

std::string accesses(const MapProblem& p, const Config& config, std::size_t vector_dimension) {
  const std::size_t along = map_unrolled_dimension(p, config.at("kUnroll"));
  const std::vector<std::size_t> given = given_operands(p);
  const std::vector<const MapOperand*> tensors = given_tensors(p);
  const auto is_shared = [&](const MapOperand& operand) {
    for (std::size_t i = 0; i < p.rank(); ++i) {
      if (p.extents[i] > 1 && operand.strides[i] == 0) return true;
    }
    return false;
  };
  return choice("int letter(int k)", given.size(), [&](std::size_t k) { return given[k]; }) +
         choice("int type(int k)", given.size(),
                [&](std::size_t k) { return judge_type(tensors[k]->type); }) +
         choice("bool shared(int k)", given.size(),
                [&](std::size_t k) { return is_shared(*tensors[k]); }) +
         choice("bool repeats(int k)", given.size(),
                [&](std::size_t k) { return tensors[k]->strides[along] == 0; }) +
         choice("int colour(int k)", given.size(),
                [&](std::size_t k) {
                  return map_colour_dimension(p, *tensors[k], vector_dimension,
                                              config.at("kVector"));
                }) +
         choice("i64 step(int k)", tensors.size(),
                [&](std::size_t k) { return tensors[k]->strides[vector_dimension]; });
}

}  // namespace

std::string map_expression_source(const Expression& expression,
                                  const std::function<std::string(char)>& letter) {
  std::vector<std::string> open;  // arguments that wait for their word
  ExpressionPart before;          // the last argument, or its word
  for (const ExpressionPart& part : expression.parts()) {
    const ExpressionPart last = std::exchange(before, part);
    if (part.kind == Kind::kLetter) open.push_back(letter(part.letter));
    if (part.kind == Kind::kConstant) open.push_back(constant_source(part.value));
    if (part.kind != Kind::kWord) continue;
    const auto first = open.end() - expression_arguments(part.word);
    const std::vector<std::string> arguments(first, open.end());
    std::string call = reciprocal_source(expression_word(part.word), last, arguments);
    if (call.empty()) call = call_source(part.word, arguments);
    open.erase(first, open.end());
    open.push_back(std::move(call));
  }
  return open.front();
}

std::string map_source(const MapProblem& p, const Config& config) {
  const std::size_t along = map_vector_dimension(p, config.at("kAcross") != 0);
  Widths widths(p.rank(), 1);
  widths[along] = config.at("kVector");
  if (p.reduction == kMapNone) {
    widths[map_unrolled_dimension(p, config.at("kUnroll"))] *= config.at("kUnroll");
  }
  return "#include \"map/words.cuh\"\n\nnamespace vitune {\nstruct Config {\n" +
         numbers(p, config) + accesses(p, config, along) +
         places("result", p, 0, p.results, widths) +
         places("reduced", p, p.results, p.rank(), widths) + place_of(p) + expressions(p) +
         formatted(
             "}};\n}}  // namespace vitune\n\n#include \"map/map.cuh\"\n\n"
             "extern \"C\" __global__ void __launch_bounds__({})\n"
             "vitune_map(const __grid_constant__ vitune::MapParams params) {{\n"
             "  vitune::map_kernel<vitune::Config>(params);\n}}\n",
             config.at("kThreads"));
}

}  // namespace vitune
