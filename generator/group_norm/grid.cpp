// generator/group_norm/grid.cpp -- The family grid: all CTAs of the device, at once, go through the
// tensor in waves of whole groups.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/group_norm/family.h"
#include "generator/group_norm/operator.h"

namespace vitune {
namespace {

constexpr std::int64_t kClusterCtas = 8, kWholeNumbers = 65536;  // that read a group once

using Rule = std::optional<std::string>;

// Groups that neither a cluster (NCHW) nor a CTA's registers (NHWC) hold.
Rule check_group(const GroupNormProblem& p, const DeviceInfo& device) {
  const std::int64_t numbers = p.group_channels() * p.positions;
  const std::int64_t bytes = numbers * element_bytes(p.type);
  const bool is_small =
      p.nhwc ? numbers <= kWholeNumbers : bytes <= kClusterCtas * device.shared_per_block;
  if (is_small) return formatted("{} bytes of a group are read once by fewer CTAs", bytes);
  return std::nullopt;
}

// Halves of halves: moments are merged without divisions, and no thread looks for its vectors.
Rule check_tiling(const GroupNormProblem& p, const GroupNormTiling& t) {
  if (t.vector_bytes != 16 || t.slots != 1) {
    return formatted("vectors of {} bytes and {} groups", t.vector_bytes, t.slots);
  }
  const bool halves = is_power_of_two(t.threads) && is_power_of_two(t.chunks) &&
                      is_power_of_two(t.row_vectors / t.groups);
  if (!halves || !t.even || t.row_vectors > kWarp || kWarp % t.row_vectors != 0) {
    return formatted("{} threads, {} chunks, rows of {} vectors", t.threads, t.chunks,
                     t.row_vectors);
  }
  if (!p.nhwc && p.positions % (t.chunk_rows * t.vector) != 0) {
    return formatted("{} numbers of a chunk, {} of a channel", t.chunk_rows * t.vector,
                     p.positions);
  }
  return std::nullopt;
}

// Nothing unless each wave takes as many parts, of whole groups.
std::optional<std::int64_t> ctas_of(const GroupNormProblem& p, const GroupNormTiling& t) {
  const std::int64_t all = group_norm_tiles(p, t.groups) * t.chunks, ctas = all / t.waves;
  if (all % t.waves != 0 || ctas % t.chunks != 0) return std::nullopt;
  // A CTA of NHWC keeps to its rows of images: a wave is one slice.
  if (p.nhwc && ctas != t.chunks) return std::nullopt;
  return ctas;
}

// One CTA on an SM, and more than half of the SMs busy; whole groups in a wave.
Rule check_ctas(const GroupNormProblem& p, const GroupNormTiling& t, std::int64_t sms) {
  const std::optional<std::int64_t> ctas = ctas_of(p, t);
  if (!ctas) {
    return formatted("{} parts of groups by {} waves", group_norm_tiles(p, t.groups) * t.chunks,
                     t.waves);
  }
  if (sms == 0 || (*ctas <= sms && 2 * *ctas > sms)) return std::nullopt;
  return formatted("{} CTAs, {} SMs", *ctas, sms);
}

Rule check_threads(const GroupNormTiling& t) {
  if (t.pieces * t.threads == 2048) return std::nullopt;
  return formatted("{} threads, {} vectors to a piece", t.threads, t.pieces);
}

// Two waves on the chip, at most a quarter of the second in registers, and no more waves than that
// takes.
Rule check_room(const GroupNormTiling& t, std::int64_t shared) {
  if (t.grid_bytes() > shared) return formatted("{} bytes, {} there are", t.grid_bytes(), shared);
  if (4 * t.held > t.steps) return formatted("{} of {} vectors in registers", t.held, t.steps);
  const std::int64_t wave = t.steps * t.threads * t.vector_bytes, twice = 4 * wave - wave / 2;
  if (twice <= shared) return formatted("waves of {} bytes, twice as many fit", wave);
  return std::nullopt;
}

// The plan of the grid's kernel, of so many CTAs, and of the one that clears so many words: that
// one comes first, and lets the other begin when all before both has ended.
void clear_first(LaunchPlan& plan, std::int64_t ctas, std::int64_t words) {
  KernelLaunch &grid = plan.kernels[0], &clear = plan.kernels[1];
  grid.shape.grid[0] = static_cast<std::uint32_t>(ctas);
  grid.shape.is_cooperative = true;
  clear.shape.grid[0] = static_cast<std::uint32_t>(ceil_div(words, clear.shape.block[0]));
  std::swap(grid, clear);
}

// A program may see a part of a device that shares its SMs with other processes.
void require_room(std::int64_t ctas, const DeviceInfo& device, int resident) {
  const std::int64_t room = std::int64_t{device.sm_count} * resident;
  if (ctas <= room || device.sm_count == 0) return;
  throw Error(ErrorCode::kUnsupported,
              formatted("{} CTAs have to run at once, the device has room for {}", ctas, room));
}

class Grid final : public GroupNormFamily {
 public:
  std::string_view name() const override { return "grid"; }
  bool owns(const Config& config) const override { return config.find("kTurns").value_or(1) != 1; }
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    if (device.cc_major < 9) return formatted("{}.x is not tried", device.cc_major);
    return check_group(group_norm_of(problem), device);
  }
  // The result is not kept in L2.
  std::vector<Parameter> parameters(const Problem& problem) const override {
    return with_values(GroupNormFamily::parameters(problem), {{"kCluster", {0}},
                                                              {"kThreads", {512, 1024}},
                                                              {"kPieces", {0, 2, 4}},
                                                              {"kEarlyStart", {1}},
                                                              {"kStreaming", {1, 2}},
                                                              {"kTurns", {2, 4, 8, 16, 32}}});
  }
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  // The last one has the most threads.
  std::vector<Config> defaults(const Problem&, const DeviceInfo&,
                               const ParameterSpace& space) const override {
    const std::vector<Config> configs = space.enumerate(name());
    const auto found = std::find_if(configs.rbegin(), configs.rend(), [](const Config& config) {
      return config.at("kStreaming") == 2;
    });
    return found == configs.rend() ? std::vector<Config>() : std::vector<Config>{*found};
  }
  // Registers of the last wave, written once and read once in a call.
  int harmless_spill_bytes() const override { return 64; }
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override {
    const GroupNormTiling t = group_norm_tiling(group_norm_of(problem), config);
    const int threads = static_cast<int>(t.threads);
    return {{"vitune_group_norm_grid", threads, t.grid_bytes()},
            {"vitune_group_norm_clear", threads, 0}};
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  bool runs_at_once() const override { return true; }

 protected:
  std::int64_t wanted_ctas(const GroupNormTiling&) const override { return 1; }

 private:
  std::string_view template_name() const override { return "grid"; }
  std::string facts_text(const GroupNormTiling& t) const override {
    return formatted("  static constexpr int kWaves = {};\n  static constexpr int kHeld = {};\n",
                     t.waves, t.held);
  }
};

std::vector<Constraint> Grid::rules(const Problem& asked, const DeviceInfo& device) const {
  const GroupNormProblem& problem = group_norm_of(asked);
  std::vector<Constraint> rules = GroupNormFamily::rules(asked, device);
  const auto in_waves = [&](std::string rule, auto check) {
    rules.push_back(group_norm_tiling_rule(std::move(rule), problem, check));
    rules.back().needs.emplace_back("kTurns");
  };
  in_waves(
      "waves: 16-byte vectors of one group, and threads, chunks and vectors that are powers of two",
      [problem](const GroupNormTiling& t) { return check_tiling(problem, t); });
  in_waves("waves: 512 threads with 4 vectors to a piece, or 1024 with 2", check_threads);
  in_waves("waves: of whole groups, a CTA for an SM, more than half of the SMs busy",
           [problem, sms = device.sm_count](const GroupNormTiling& t) {
             return check_ctas(problem, t, sms);
           });
  in_waves(
      "waves: as few as leave room for two on the chip, at most a quarter of the second in "
      "registers",
      [shared = device.shared_per_block](const GroupNormTiling& t) {
        return check_room(t, shared);
      });
  return rules;
}

LaunchPlan Grid::plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                      std::span<const int> resident) const {
  const GroupNormProblem& p = group_norm_of(problem);
  const GroupNormTiling t = group_norm_tiling(p, config);
  const std::optional<std::int64_t> ctas = ctas_of(p, t);
  if (!ctas) {
    throw Error(ErrorCode::kFailure,
                formatted("{} waves are no whole groups of {}", t.waves, p.text()));
  }
  require_room(*ctas, device, resident.front());
  LaunchPlan plan = GroupNormFamily::plan(problem, config, device, resident);
  clear_first(plan, *ctas, p.images * p.groups * t.chunks);
  return plan;
}

}  // namespace

const Family& group_norm_grid() {
  static const Grid instance;
  return instance;
}

}  // namespace vitune
