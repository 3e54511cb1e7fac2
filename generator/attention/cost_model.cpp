// generator/attention/cost_model.cpp -- Counts of work, and the time they take.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/cost_model.h"

#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "generator/attention/even_items.h"
#include "generator/attention/facts.h"

namespace vitune {
namespace {

// Facts of the H200, for devices that do not state theirs (architecture limits, say).
constexpr double kSms = 132;
constexpr double kClockKhz = 1980000;
constexpr double kMemoryBytesPerUs = 4.8e6;
constexpr double kL2Bytes = 60.0 * 1024 * 1024;

double stated(double value, double otherwise) { return value > 0 ? value : otherwise; }

// Keys a warp works through per row tile, padding included, with steps.
struct KeyWork {
  double keys;   // on average over the rows
  double steps;  // likewise
  double most_steps;
};

KeyWork key_work(const AttentionProblem& problem, const AttentionShape& shape) {
  const double steps = static_cast<double>(shape.steps());
  const double width = static_cast<double>(shape.block_n);
  const double nk = static_cast<double>(problem.nk);
  const double tail =
      shape.constant_keys
          ? static_cast<double>(round_up(problem.nk - (shape.steps() - 1) * shape.block_n, 8))
          : width;
  const double all = (steps - 1) * width + tail;
  if (!problem.causal) return {all, steps, steps};
  // Row r sees r + 1 keys; a tile goes on to the last step that its last row sees.
  const double nq = static_cast<double>(problem.nq);
  const double seen = nq <= nk ? nq / 2 : nk * (nq - nk / 2) / nq;
  const double tile = static_cast<double>(shape.resident ? shape.warp_rows() : shape.block_m());
  const double keys = std::min(all, seen + (tile + width) / 2);
  return {keys, std::min(steps, keys / width), steps};
}

// The kernels of forward_sm90.cuh: products by warpgroups of four warps and 64 rows.
bool by_warpgroups(const Config& config) { return config.find("kSwizzle").value_or(0) != 0; }

// Row tiles of a head that are worked on: whole warpgroups have rows of their own or pad them.
std::int64_t tiles_of_head(const AttentionProblem& problem, const AttentionShape& shape,
                           bool warpgroups) {
  // Spare rows are another warpgroup's, at little cost.
  const std::int64_t rows = shape.spare_rows ? shape.block_rows() : problem.nq;
  const std::int64_t tiles = ceil_div(rows, shape.warp_rows());
  return warpgroups ? round_up(tiles, 4) : tiles;
}

// Registers the compiler likes to use, per live one. In warpgroup kernels the weights take the
// scores' registers (first prototypes: 135 for 136 live ones).
double comfort(bool warpgroups) { return warpgroups ? 1.1 : 1.8; }

// Registers per thread that __launch_bounds__ leaves.
double register_cap(const AttentionShape& shape, const DeviceInfo& device) {
  const std::int64_t registers = device.registers_per_sm > 0 ? device.registers_per_sm : 65536;
  return std::max(24.0, static_cast<double>(shape.register_limit(registers)));
}

// What the compiler is likely to give a thread: it is generous until __launch_bounds__ stops it.
int likely_registers(const AttentionShape& shape, const DeviceInfo& device, bool warpgroups) {
  // Warps that copy leave theirs to the others, so what a CTA starts with is what it holds.
  if (shape.producer) return static_cast<int>(std::min<std::int64_t>(255, 65536 / shape.threads()));
  const double wanted = comfort(warpgroups) * static_cast<double>(shape.live_registers());
  return static_cast<int>(std::clamp(wanted, 24.0, register_cap(shape, device))) / 8 * 8;
}

// Warp-wide loads of one score operand for `scores` scores; `vector` is what attention_facts says.
double operand_loads(double scores, int vector) { return scores / 32 / std::max(vector, 1); }

// Row tiles of an item, on average.
double tiles_per_item(const KernelWork& work, const AttentionProblem& problem,
                      const AttentionShape& shape, bool warpgroups) {
  const double tiles = static_cast<double>(tiles_of_head(problem, shape, warpgroups));
  return static_cast<double>(problem.batch) * static_cast<double>(problem.heads) * tiles /
         work.items;
}

// Row tiles that a warp works on in turn. Beside copying warps a warpgroup goes on to the next head
// instead of waiting for the others to end this one.
double passes_per_item(double tiles, const AttentionProblem& problem, const AttentionShape& shape,
                       bool warpgroups) {
  if (!shape.resident) return 1;
  if (shape.producer) return std::max(1.0, tiles / static_cast<double>(shape.warps));
  return static_cast<double>(
      ceil_div(tiles_of_head(problem, shape, warpgroups), shape.group_warps() * shape.row_split));
}

void count_arithmetic(KernelWork& work, const AttentionProblem& problem,
                      const AttentionShape& shape, bool warpgroups) {
  const KeyWork keys = key_work(problem, shape);
  const double tiles = tiles_per_item(work, problem, shape, warpgroups);
  const double rows = tiles * static_cast<double>(shape.warp_rows());
  const double head_dim = static_cast<double>(problem.d);
  work.pipelined = shape.producer != 0;
  work.passes = passes_per_item(tiles, problem, shape, warpgroups);
  work.warps_at_work =
      std::max(1.0, std::min(static_cast<double>(shape.warps),
                             tiles * static_cast<double>(shape.key_split) / work.passes));
  work.exponentials = rows * keys.keys;
  constexpr double kMmaShare = 0.622;  // of wgmma's rate; see cost_terms()
  work.macs = 2 * work.exponentials * head_dim * (warpgroups ? kMmaShare : 1);
  work.rescales = rows * head_dim * keys.steps;
  const double split = static_cast<double>(shape.key_split);
  work.chain_steps = work.passes * (problem.causal ? keys.most_steps : keys.steps) / split;
  work.barriers = shape.resident ? 2 : keys.steps / split * (shape.stages == 1 ? 2 : 1);
  if (shape.key_split > 1) work.barriers += 2;
  if (shape.producer) work.barriers = 0;
}

void count_traffic(KernelWork& work, const AttentionProblem& problem, const AttentionShape& shape,
                   bool warpgroups) {
  const KeyWork keys = key_work(problem, shape);
  const double tiles = tiles_per_item(work, problem, shape, warpgroups);
  const double rows = static_cast<double>(shape.warp_rows());
  const double row_bytes = 2 * static_cast<double>(problem.d);  // 16-bit elements
  const double query_reads = shape.query_in_registers ? 1 : keys.steps;
  const double readers = warpgroups ? tiles / 4 : tiles;  // of K and V: warps or warpgroups
  work.shared_bytes = row_bytes * (readers * 2 * keys.keys + tiles * rows * query_reads);
  // A resident item loads K and V of each of its heads once.
  const double heads =
      shape.resident
          ? static_cast<double>(problem.batch * problem.heads * shape.row_split) / work.items
          : 1;
  work.loaded_bytes = row_bytes * 2 * (keys.keys * heads + tiles * rows);
  const double first_tile = row_bytes * (rows * tiles + 2 * static_cast<double>(shape.block_n));
  work.exposed_bytes = shape.resident ? work.loaded_bytes / work.passes : first_tile;
}

void count_scores(KernelWork& work, const AttentionProblem& problem, const AttentionShape& shape) {
  const AttentionFacts facts = attention_facts(problem);
  if (problem.bias) {
    work.extra_scores += work.exponentials;
    if (shape.bias_tiles()) {
      // Copied to shared memory and read from there: as matrices, as words with rows that meet in
      // banks, or value by value.
      const bool matrices = shape.bias_in_registers || (facts.bias_aligned && !shape.whole_rows());
      work.shared_bytes += work.exponentials * (matrices ? 2 : facts.bias_vector >= 2 ? 4 : 8);
      if (!facts.bias_one_row && !shape.bias_in_registers)
        work.loaded_bytes += 2 * work.exponentials;
    } else if (!shape.bias_in_registers) {
      // A persistent CTA that keeps its bias reads it once per head it meets, not once per item.
      work.score_loads += operand_loads(work.exponentials, facts.bias_vector);
    }
  }
  if (problem.mask) {
    work.extra_scores += work.exponentials;
    work.score_loads += operand_loads(work.exponentials, facts.mask_vector);
  }
}

}  // namespace

const std::array<CostTermInfo, kCostTerms>& cost_terms() {
  static constexpr std::array<CostTermInfo, kCostTerms> kTerms = {{
      {"tensor", "multiply-adds per clock and SM", 1270,
       "62.2 % of wgmma's 2048, measured for mma.sync with 8 or more warps"},
      {"exponential", "exponentials per clock and SM", 16, "MUFU.EX2, measured"},
      {"issue", "issue slots per score", 5.15, "counted in SASS: 4.5 and 0.65 for the loop"},
      {"shared", "bytes per clock and SM", 128, "one port of 32 banks"},
      {"l2", "bytes per clock and SM", 33, "7.8 TB/s measured"},
      {"memory", "share of the nominal bandwidth", 0.86, "4.1 of 4.8 TB/s measured in a copy"},
      {"score load", "clocks per warp-wide load of bias or mask", 8,
       "windows with and without a bias, first kernels"},
      {"chain", "clocks of a lone warp per clock of the units it uses", 0.9, "first kernels"},
      {"step", "clocks per step of keys and per barrier", 100, "first kernels"},
      {"start", "clocks from a CTA's start to its first product", 1500,
       "latency of device memory and of a launch"},
      {"squeeze", "added share of a warp's clocks per live set of registers that is missing", 0.4,
       "kMinCtas at N = 577 and 1025, first kernels"},
      {"cold launch", "us", 3.2, "an empty kernel in the cold loop"},
      {"warm launch", "us", 0.55, "a graph node of an empty kernel"},
  }};
  return kTerms;
}

CostCoefficients default_cost(const DeviceInfo& device) {
  CostCoefficients cost;
  for (std::size_t i = 0; i < kCostTerms; ++i) cost.values[i] = cost_terms()[i].initial;
  // mma.sync multiply-adds per clock and SM: A100 has 1024, the consumer parts 512 (the white
  // papers' dense 16-bit rates with fp32 sums); 10.x is taken as 9.0 until measured.
  const bool half = device.cc_major == 12 || (device.cc_major == 8 && device.cc_minor != 0);
  auto& tensor = cost.values[static_cast<std::size_t>(CostTerm::kTensor)];
  if (half) tensor = 512;
  if (device.cc_major == 8 && device.cc_minor == 0) tensor = 1024;
  return cost;
}

KernelWork work_of(const AttentionProblem& problem, const Config& config, const DeviceInfo& device,
                   int registers) {
  const AttentionShape shape(problem, config);
  const bool warpgroups = by_warpgroups(config);
  KernelWork work;
  work.items = static_cast<double>(shape.items(problem.batch * problem.heads));
  if (shape.even_items) {
    work.rounds = EvenItems::best(shape, problem.batch * problem.heads, sms_of(device)).rounds;
  }
  count_arithmetic(work, problem, shape, warpgroups);
  count_traffic(work, problem, shape, warpgroups);
  count_scores(work, problem, shape);
  const double live = static_cast<double>(shape.live_registers());
  work.squeeze = std::max(0.0, comfort(warpgroups) - register_cap(shape, device) / live);
  const int given = registers > 0 ? registers : likely_registers(shape, device, warpgroups);
  work.resident =
      resident_ctas(device, static_cast<int>(shape.threads()), given, shape.shared_bytes());
  work.memory_bytes = problem.min_bytes();
  return work;
}

namespace {

// Clocks that an SM's units need for one item, each unit alone.
struct UnitClocks {
  std::array<double, 6> units;
  double issue_side;  // what a warp waits for in turn: tensor, exponential, issue, shared
};

UnitClocks unit_clocks(const KernelWork& work, const CostCoefficients& cost) {
  constexpr double kLanes = 128;  // fp32 lanes of an SM
  const double slower = 1 + work.squeeze * cost[CostTerm::kSqueeze];
  const double tensor = work.macs / cost[CostTerm::kTensor];
  const double exponential = work.exponentials / cost[CostTerm::kExponential];
  const double issue =
      (work.exponentials * cost[CostTerm::kIssue] + work.extra_scores * 2 + work.rescales) / kLanes;
  const double shared = work.shared_bytes / cost[CostTerm::kShared];
  const double l2 = work.loaded_bytes / cost[CostTerm::kL2];
  const double loads = work.score_loads * cost[CostTerm::kScoreLoad];
  return {{tensor * slower, exponential, issue * slower, shared * slower, l2, loads},
          slower * (tensor + exponential + issue + shared) + loads};
}

// Clocks until `count` items that run side by side on an SM have ended: no less than any unit
// needs for all, nor than the chain of one. The 2-norm stands for how far they overlap.
double round_clocks(const UnitClocks& clocks, double chain, double count) {
  double squares = chain * chain;
  for (const double unit : clocks.units) squares += (count * unit) * (count * unit);
  return std::sqrt(squares);
}

double compute_clocks(const KernelWork& work, const DeviceInfo& device,
                      const CostCoefficients& cost) {
  constexpr double kExposure = 2;
  const UnitClocks clocks = unit_clocks(work, cost);
  // A lone warp has a quarter of the SM, and waits for each unit in turn.
  const double start =
      cost[CostTerm::kStart] + kExposure * work.exposed_bytes / cost[CostTerm::kL2];
  const double steps = cost[CostTerm::kChain] * 4 * clocks.issue_side / work.warps_at_work +
                       cost[CostTerm::kStep] * (work.chain_steps + work.barriers);
  const double held = std::max(1.0, work.resident);
  const double share =
      work.rounds > 0 ? work.rounds : std::ceil(work.items / stated(device.sm_count, kSms));
  // Copying warps are ahead but for the first item of a CTA.
  if (work.pipelined) return start + round_clocks(clocks, std::ceil(share / held) * steps, share);
  const double chain = start + steps;
  const double rounds = std::floor(share / held);
  const double rest = share - rounds * held;
  return rounds * round_clocks(clocks, chain, held) +
         (rest > 0 ? round_clocks(clocks, chain, rest) : 0);
}

// Bytes that come from device memory.
double memory_traffic(const KernelWork& work, const DeviceInfo& device, Residency state) {
  if (state == Residency::kCold) return work.memory_bytes;
  // Of what fits into half the L2 the next call finds everything, of more ever less.
  const double kept = stated(static_cast<double>(device.l2_bytes), kL2Bytes) / 2;
  return std::max(0.0, work.memory_bytes - kept);
}

}  // namespace

double predicted_us(const KernelWork& work, const DeviceInfo& device, const CostCoefficients& cost,
                    Residency state) {
  constexpr double kSustained = 0.92;  // of the highest clock, under this load
  const double clocks_per_us = stated(device.clock_khz, kClockKhz) * kSustained / 1e3;
  const double nominal = 2.0 * device.memory_clock_khz * device.memory_bus_bits / 8 / 1e3;
  const double bytes_per_us = stated(nominal, kMemoryBytesPerUs) * cost[CostTerm::kMemory];
  const double compute = compute_clocks(work, device, cost) / clocks_per_us;
  const double memory = memory_traffic(work, device, state) / bytes_per_us;
  const double launch =
      cost[state == Residency::kCold ? CostTerm::kColdLaunch : CostTerm::kWarmLaunch];
  return launch + std::hypot(compute, memory);
}

}  // namespace vitune
