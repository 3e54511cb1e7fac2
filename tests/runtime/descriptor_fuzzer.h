// tests/runtime/descriptor_fuzzer.h -- Seeded descriptions, sound and not, and what must hold.
//
// Structured: a description starts as a random valid problem, then some fields take interesting
// values, or its bytes are random altogether. What the library accepts must be a problem whose text
// parses back to it and whose tensors fit; what it refuses must come with a sentence.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "generator/attention/problem.h"
#include "tests/generator/random_problem.h"
#include "vitune/vitune.h"

namespace vitune::test {

inline vitune_strides c_strides(const TensorStrides& s) { return {s.batch, s.head, s.row}; }

inline int32_t c_type(ElementType type) {
  switch (type) {
    case ElementType::kBf16:
      return VITUNE_BF16;
    case ElementType::kFp16:
      return VITUNE_FP16;
    case ElementType::kFp32:
      return VITUNE_FP32;
    case ElementType::kBool:
      return VITUNE_BOOL;
    case ElementType::kU8:
      return VITUNE_U8;
    case ElementType::kI32:
      return VITUNE_I32;
  }
  return VITUNE_NONE;
}

// The description of a problem, field by field; independent of the library's own conversion.
inline vitune_attention_desc describe(const AttentionProblem& p) {
  vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
  desc.dtype = c_type(p.dtype);
  desc.causal = p.causal ? 1 : 0;
  desc.batch = p.batch;
  desc.heads = p.heads;
  desc.kv_heads = p.kv_heads;
  desc.nq = p.nq;
  desc.nk = p.nk;
  desc.d = p.d;
  desc.scale = p.scale;
  desc.q = c_strides(p.q);
  desc.k = c_strides(p.k);
  desc.v = c_strides(p.v);
  desc.o = c_strides(p.o);
  if (p.bias) {
    desc.bias_type = c_type(p.bias->type);
    desc.bias_batches = p.bias->batches;
    for (std::size_t i = 0; i < 4; ++i) desc.bias_strides[i] = p.bias->strides[i];
  }
  if (p.mask) {
    desc.mask_type = c_type(p.mask->type);
    desc.mask_batches = p.mask->batches;
    for (std::size_t i = 0; i < 4; ++i) desc.mask_strides[i] = p.mask->strides[i];
  }
  desc.lse = p.lse ? 1 : 0;
  desc.alignment = static_cast<int32_t>(p.alignment);
  return desc;
}

// A description with room behind it, since its size field may speak of more than we know.
struct FuzzInput {
  static constexpr std::size_t kRoom = 4096;
  alignas(vitune_attention_desc) std::array<unsigned char, kRoom> bytes{};
  const vitune_attention_desc* desc() const {
    return reinterpret_cast<const vitune_attention_desc*>(bytes.data());
  }
};

class DescriptorFuzzer {
 public:
  explicit DescriptorFuzzer(std::uint64_t seed)
      : random_(seed), problems_(seed ^ 0x9e3779b97f4a7c15u, {64, 8, 600}) {}

  void next(FuzzInput& input) {
    vitune_attention_desc desc = describe(problems_.next());
    const std::uint64_t kind = random_() % 16;
    if (kind == 0) {
      fill_randomly(&desc, sizeof(desc));
      if (random_() % 2 == 0) desc.size = sizeof(desc);
    } else if (kind < 12) {
      for (std::uint64_t left = 1 + random_() % 3; left > 0; --left) mutate(desc);
    }
    if (random_() % 32 == 0) desc.size = size_value();
    std::memset(input.bytes.data(), 0, input.bytes.size());
    std::memcpy(input.bytes.data(), &desc, sizeof(desc));
    if (random_() % 64 == 0) input.bytes[sizeof(desc) + random_() % 64] = 1;
  }

  std::uint64_t operator()() { return random_(); }

  std::int64_t interesting() {
    static constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    static constexpr std::array<std::int64_t, 24> kValues = {
        0,     1,         2,       3,          7,          8,          16,        63,
        64,    65,        128,     136,        -1,         -8,         kMax,      kMax - 1,
        -kMax, -kMax - 1, 1 << 16, 2147483647, 2147483648, 4294967296, 1ll << 46, 1ll << 62};
    const std::uint64_t at = random_() % (kValues.size() + 4);
    if (at < kValues.size()) return kValues[at];
    return static_cast<std::int64_t>(random_()) >> (random_() % 64);
  }

 private:
  void fill_randomly(void* data, std::size_t size) {
    auto* bytes = static_cast<unsigned char*>(data);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(random_());
  }

  std::size_t size_value() {
    static constexpr std::array<std::size_t, 8> kSizes = {0,
                                                          1,
                                                          8,
                                                          sizeof(vitune_attention_desc) - 1,
                                                          sizeof(vitune_attention_desc) + 1,
                                                          sizeof(vitune_attention_desc) + 64,
                                                          FuzzInput::kRoom,
                                                          SIZE_MAX};
    const std::uint64_t at = random_() % (kSizes.size() + 1);
    return at < kSizes.size() ? kSizes[at] : random_();
  }

  // Every field but the size, as a list of 8 and 4 byte integers and one double.
  void mutate(vitune_attention_desc& desc) {
    std::array<std::int64_t*, 35> wide = {&desc.batch,
                                          &desc.heads,
                                          &desc.kv_heads,
                                          &desc.nq,
                                          &desc.nk,
                                          &desc.d,
                                          &desc.dv,
                                          &desc.q.batch,
                                          &desc.q.head,
                                          &desc.q.row,
                                          &desc.k.batch,
                                          &desc.k.head,
                                          &desc.k.row,
                                          &desc.v.batch,
                                          &desc.v.head,
                                          &desc.v.row,
                                          &desc.o.batch,
                                          &desc.o.head,
                                          &desc.o.row,
                                          &desc.bias_batches,
                                          &desc.mask_batches,
                                          &desc.bias_strides[0],
                                          &desc.bias_strides[1],
                                          &desc.bias_strides[2],
                                          &desc.bias_strides[3],
                                          &desc.mask_strides[0],
                                          &desc.mask_strides[1],
                                          &desc.mask_strides[2],
                                          &desc.mask_strides[3],
                                          &desc.q_bytes,
                                          &desc.k_bytes,
                                          &desc.v_bytes,
                                          &desc.o_bytes,
                                          &desc.bias_bytes,
                                          &desc.lse_bytes};
    std::array<std::int32_t*, 6> narrow = {&desc.dtype,     &desc.causal, &desc.bias_type,
                                           &desc.mask_type, &desc.lse,    &desc.alignment};
    const std::uint64_t which = random_() % (wide.size() + narrow.size() + 1);
    if (which < wide.size()) {
      *wide[which] = interesting();
    } else if (which < wide.size() + narrow.size()) {
      *narrow[which - wide.size()] = static_cast<std::int32_t>(interesting());
    } else {
      const auto bits = random_() % 4 == 0 ? random_() : static_cast<std::uint64_t>(interesting());
      std::memcpy(&desc.scale, &bits, sizeof(bits));
    }
  }

  std::mt19937_64 random_;
  testing_support::RandomProblems problems_;
};

// The results of a run of the fuzzer.
struct FuzzReport {
  std::uint64_t runs = 0, accepted = 0, prepared = 0, launched = 0;
  std::optional<std::string> finding;  // the first thing that must not be
};

class DescriptorCheck {
 public:
  explicit DescriptorCheck(std::uint64_t seed) : fuzzer_(seed) {}

  // `runs` descriptions through the functions that need no context; every `stride`th also through
  // those that do, on `context`.
  void run(std::uint64_t runs, vitune_context* context, std::uint64_t stride, FuzzReport& report) {
    for (std::uint64_t i = 0; i < runs && !report.finding; ++i, ++report.runs) {
      fuzzer_.next(input_);
      const bool accepted = check_text(report);
      report.accepted += accepted ? 1 : 0;
      if (context != nullptr && i % stride == 0) check_context(context, accepted, report);
    }
  }

 private:
  void fail(FuzzReport& report, const std::string& what) {
    report.finding = "run " + std::to_string(report.runs) + ": " + what;
  }

  // A refusal has its sentence; anything else is no answer to a bad description.
  void check_refusal(vitune_status status, FuzzReport& report) {
    const bool known = status == VITUNE_INVALID_ARGUMENT || status == VITUNE_UNSUPPORTED;
    if (!known) fail(report, std::string("refused with ") + vitune_status_name(status));
    if (vitune_last_error()[0] == '\0') fail(report, "refused without a sentence");
  }

  bool check_text(FuzzReport& report) {
    std::array<char, 1024> text{};
    std::size_t length = 0;
    const vitune_status status =
        vitune_problem_text(input_.desc(), text.data(), text.size(), &length);
    if (status != VITUNE_OK) {
      check_refusal(status, report);
      return false;
    }
    const std::string whole = text.data();
    if (whole.size() != length) fail(report, "the length is not the text's");
    try {
      check_accepted(AttentionProblem::parse(whole), whole, report);
    } catch (const std::exception& error) {
      fail(report, "accepted '" + whole + "', which does not parse: " + error.what());
    }
    return true;
  }

  void check_accepted(const AttentionProblem& problem, const std::string& text,
                      FuzzReport& report) {
    if (problem.text() != text) fail(report, "'" + text + "' is not canonical");
    constexpr std::int64_t kMost = std::int64_t{1} << 47;
    for (const std::int64_t extent : {problem.q_extent(), problem.k_extent(), problem.v_extent(),
                                      problem.o_extent(), problem.bias_extent()}) {
      if (extent < 0 || extent > kMost) fail(report, "'" + text + "' does not fit");
    }
    vitune_attention_desc back = VITUNE_ATTENTION_DESC_INIT;
    std::array<char, 1024> again{};
    if (vitune_problem_parse(text.c_str(), &back) != VITUNE_OK ||
        vitune_problem_text(&back, again.data(), again.size(), nullptr) != VITUNE_OK ||
        text != again.data()) {
      fail(report, "'" + text + "' becomes '" + again.data() + "'");
    }
  }

  const void* pointer() {
    static constexpr std::array<std::uint64_t, 6> kBases = {
        0, 2, 0x100000000, 0x7f0000000000, ~0ull, 0x200000000};
    return reinterpret_cast<const void*>(kBases[fuzzer_() % kBases.size()] +
                                         (fuzzer_() % 4 == 0 ? fuzzer_() % 32 : 0));
  }

  void check_context(vitune_context* context, bool accepted, FuzzReport& report) {
    const bool prepared = vitune_prepare(context, input_.desc()) == VITUNE_OK;
    if (prepared && !accepted) fail(report, "prepared what has no text");
    report.prepared += prepared ? 1 : 0;
    vitune_selection selection = VITUNE_SELECTION_INIT;
    const bool found = vitune_query(context, input_.desc(), &selection) == VITUNE_OK;
    if (found && !accepted) fail(report, "found a kernel for what has no text");
    const void* p[7] = {pointer(), pointer(), pointer(), pointer(),
                        pointer(), pointer(), pointer()};
    const vitune_status status = vitune_attention_forward(
        context, input_.desc(), p[0], p[1], p[2], p[3], p[4], const_cast<void*>(p[5]),
        static_cast<float*>(const_cast<void*>(p[6])), nullptr, 0, nullptr);
    if (status == VITUNE_OK && !accepted) fail(report, "launched what has no text");
    if (status == VITUNE_INTERNAL) fail(report, std::string("internal: ") + vitune_last_error());
    report.launched += status == VITUNE_OK ? 1 : 0;
  }

  DescriptorFuzzer fuzzer_;
  FuzzInput input_;
};

}  // namespace vitune::test
