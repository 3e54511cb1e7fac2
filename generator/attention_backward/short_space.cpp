// generator/attention_backward/short_space.cpp -- Tunables of the family sm80_short, and good
// values without tuning.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/format.h"
#include "generator/attention/facts.h"
#include "generator/attention_backward/short.h"

namespace vitune {
namespace {

using Shape = AttentionBackwardShort;

constexpr std::int64_t kReservedBytes = 1024;  // of shared memory, of each CTA

const Tunables<Shape>& tunables_of_short() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::warps,
       {"kWarps",
        {1, 2, 3, 4, 5, 6, 7, 8},
        "warps of a CTA, which share a head's keys",
        false,
        true}},
      {&Shape::buffers,
       {"kBuffers", {1, 2}, "2: the next head is copied while one is worked on", false, true}},
      {&Shape::min_ctas,
       {"kMinCtas",
        {1, 2, 3, 4, 5, 6, 8, 12, 16},
        "CTAs per SM that the compiler leaves room for",
        false,
        true}},
  };
  return all;
}

// CTAs that an SM holds at once, where the compiler takes the registers that it likes to have.
int resident_ctas(const Shape& s, const DeviceInfo& device) {
  constexpr int kLiked = 42, kSmRegisters = 65536;
  const int registers = Shape::parts(std::min(s.register_room(), s.registers() + kLiked), 8) * 8;
  const std::int64_t sm_shared =
      std::max<std::int64_t>(device.shared_per_sm, s.shared_bytes() + kReservedBytes);
  const auto by_memory = static_cast<int>(sm_shared / (s.shared_bytes() + kReservedBytes));
  return std::max(std::min(kSmRegisters / (s.threads() * registers), by_memory), 1);
}

// Clocks of an SM for a head, roughly: what passes through shared memory, the tensor cores, memory;
// or a head's way through a CTA, of which so many are there at once.
double head_clocks(const Shape& s, double bytes, int resident) {
  constexpr double kSharedBytes = 128, kProducts = 1024, kMemoryBytes = 18.6;
  constexpr double kCopyLatency = 2000, kLatency = 2000, kGroupLatency = 1500, kQuarters = 4;
  constexpr double kHidden = 0.1;  // of what waits for something slower is not hidden there
  const double queries = s.query_bytes(), keys = s.key_bytes();
  const double scores = static_cast<double>(s.key_rows()) * s.score_pitch();
  // Copied; read once, by each warp, for delta; dS written and read; results staged.
  const double shared = 3 * queries + 2 * keys + 2 * keys + s.warps * (4 * queries + keys) +
                        2 * queries + 2 * scores + 2 * (queries + 2 * keys);
  const double products = 5.0 * s.key_rows() * s.query_rows() * s.head_dim / kProducts;
  const double way = products * kQuarters / std::min<double>(s.warps, kQuarters) + kLatency +
                     kGroupLatency * s.groups() + (s.buffers == 1 ? kCopyLatency : 0);
  const double own = way / resident, passed = shared / kSharedBytes;
  return std::max({passed, products, bytes / kMemoryBytes, own}) +
         kHidden * (passed + products + own);
}

}  // namespace

AttentionBackwardShort attention_backward_short_facts(const AttentionBackwardProblem& p) {
  const AttentionFacts known = attention_facts(p.forward);
  Shape facts = {};
  facts.head_dim = static_cast<int>(p.forward.d);
  facts.query_tiles = Shape::parts(static_cast<int>(p.forward.nq), 8);
  facts.key_tiles = Shape::parts(static_cast<int>(p.forward.nk), 8);
  facts.bias_words = known.bias == 0 ? 0 : known.bias == 1 ? 2 : 1;
  facts.mask = known.mask ? 1 : 0;
  facts.dbias = p.dbias ? 1 : 0;
  return facts;
}

AttentionBackwardShort attention_backward_short_shape(const AttentionBackwardProblem& p,
                                                      const Config& config) {
  return read_tunables(tunables_of_short(), config, attention_backward_short_facts(p));
}

std::vector<Parameter> AttentionBackwardShortFamily::tunables() const {
  return parameters_of(tunables_of_short());
}

std::vector<Constraint> AttentionBackwardShortFamily::rules(const Problem& problem,
                                                            const DeviceInfo& device) const {
  const std::int64_t shared = device.shared_per_block, sm_shared = device.shared_per_sm;
  const Shape facts = attention_backward_short_facts(attention_backward_of(problem));
  const Tunables<Shape>& all = tunables_of_short();
  std::vector<Constraint> rules = geometry_rules(attention_backward_short_rules().all, all, facts);
  rules.push_back(shape_rule<Shape>(
      "shared memory: all rows of a head, and of kMinCtas on an SM", all, facts,
      {&Shape::warps, &Shape::buffers, &Shape::min_ctas},
      [shared, sm_shared](const Shape& s) {
        const std::int64_t bytes = s.shared_bytes();
        return bytes <= shared && (bytes + kReservedBytes) * s.min_ctas <=
                                      std::max(sm_shared, shared + kReservedBytes);
      },
      [](const Shape& s) { return formatted("{} bytes", s.shared_bytes()); }));
  return rules;
}

std::optional<double> AttentionBackwardShortFamily::rank(const Problem& problem,
                                                         const Config& config,
                                                         const DeviceInfo& device) const {
  constexpr int kAtEase = 8;
  constexpr double kPressed = 1.4;  // where the compiler has few registers to spare
  const AttentionBackwardProblem& p = attention_backward_of(problem);
  const Shape shape = attention_backward_short_shape(p, config);
  const double heads = static_cast<double>(p.forward.batch) * static_cast<double>(p.forward.heads);
  return head_clocks(shape, p.min_bytes() / heads, resident_ctas(shape, device)) *
         (shape.registers() + kAtEase > shape.register_room() ? kPressed : 1);
}

}  // namespace vitune
