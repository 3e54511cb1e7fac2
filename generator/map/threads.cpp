// generator/map/threads.cpp -- The family of maps: threads side by side, some of them to a result
// that is reduced.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "generator/map/kernel_spec.h"
#include "generator/map/operator.h"

namespace vitune {
namespace {

constexpr char kEntry[] = "vitune_map";
constexpr std::int64_t kWarp = 32, kMostValues = 64;

bool is_across(const Config& config) { return config.at("kAcross") != 0; }

// Parts of what is reduced that threads share.
std::int64_t steps_of(const MapProblem& p, const Config& config) {
  return p.reduced_count() / (is_across(config) ? 1 : config.at("kVector"));
}

// Results that a thread has at once.
std::int64_t thread_results(const MapProblem& p, const Config& config) {
  return p.reduction == kMapNone || is_across(config) ? config.at("kVector") : 1;
}

std::int64_t operand_count(const MapProblem& p) {
  return std::ranges::count_if(p.operands, [](const auto& operand) { return operand.has_value(); });
}

// Where neighbours are, so that warps read whole lines; both ways if they are along both.
std::vector<std::int64_t> across_values(const MapProblem& p) {
  if (p.reduction == kMapNone) return {0};
  std::vector<std::int64_t> values;
  if (map_has_neighbours(p, false)) values.push_back(0);
  if (map_has_neighbours(p, true)) values.push_back(1);
  return values.empty() ? std::vector<std::int64_t>{0} : values;
}

std::vector<std::int64_t> vector_values(const MapProblem& p) {
  std::int64_t widest = 1;
  for (const std::int64_t across : across_values(p)) {
    widest = std::max(widest, map_vector(p, across != 0));
  }
  std::vector<std::int64_t> values;
  for (std::int64_t vector = 1; vector <= widest; vector *= 2) values.push_back(vector);
  return values;
}

// For a device that is only known by its architecture: about as many as there are of most.
std::int64_t sms_of(const DeviceInfo& device) {
  return device.sm_count > 0 ? device.sm_count : 100;
}

// Threads of a result without any tuning: enough for the whole device, and a few accesses each.
std::int64_t wanted_row_threads(const MapProblem& p, const Config& config,
                                const DeviceInfo& device) {
  if (p.reduction == kMapNone) return 1;
  const std::int64_t steps = steps_of(p, config);
  const std::int64_t results =
      std::max<std::int64_t>(p.result_count() / thread_results(p, config), 1);
  const std::int64_t fill = ceil_div(sms_of(device) * 1024, results);
  const std::int64_t most = is_across(config) ? 16 : 512;
  const std::int64_t least = is_across(config) ? 1 : std::min<std::int64_t>(steps, kWarp / 2);
  const std::int64_t wanted =
      std::clamp(std::min(fill, ceil_div(steps, std::int64_t{4})), least, std::max(most, least));
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(wanted)));
}

KernelNeeds kernel_of(const MapProblem& p, const Config& config) {
  const std::int64_t threads = config.at("kThreads"), row_threads = config.at("kRowThreads");
  const std::int64_t lanes = is_across(config) ? 1 : std::min(row_threads, kWarp);
  const std::int64_t parts = row_threads / lanes;
  // Words of each part of each of the CTA's results (templates/map/map.cuh).
  const std::int64_t words = p.reduction == kMapSoftmax ? 2 : 1;
  const std::int64_t results =
      threads / row_threads * (is_across(config) ? config.at("kVector") : 1);
  const std::int64_t shared =
      p.reduction != kMapNone && parts > 1 ? 4 * words * parts * results : 0;
  return {kEntry, static_cast<int>(threads), shared};
}

class MapThreads final : public Family {
 public:
  std::string_view name() const override { return "map"; }
  std::vector<Parameter> parameters(const Problem& problem) const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  ConfigWords words(const Problem&, const Config& config) const override {
    const auto value = [&](const char* name) { return config.find(name).value_or(0); };
    return {formatted("{}t v{} x{}", value("kThreads"), value("kVector"), value("kUnroll")),
            {"kThreads", "kVector", "kUnroll"}};
  }
  std::string templates() const override { return "#include \"map/map.cuh\"\n"; }
  std::string source(const Problem& problem, const Config& config) const override {
    return map_source(map_of(problem), config);
  }
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override {
    return {kernel_of(map_of(problem), config)};
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
};

std::vector<Parameter> MapThreads::parameters(const Problem& problem) const {
  const MapProblem& p = map_of(problem);
  const auto unrolls = [&](std::int64_t unroll) {
    return p.reduction != kMapNone || map_unrolled_dimension(p, unroll) > 0;
  };
  std::vector<std::int64_t> row_threads = {1}, unroll = {1};
  for (std::int64_t t = 2; p.reduction != kMapNone && t <= 512; t *= 2) row_threads.push_back(t);
  for (const std::int64_t count : {2, 4}) {
    if (unrolls(count)) unroll.push_back(count);
  }
  return {
      {"kAcross", across_values(p), "vectors run along results, not what is reduced", true, true},
      {"kVector", vector_values(p), "elements of an access", false, true},
      {"kRowThreads", row_threads, "threads that share a result", false, true},
      {"kThreads", {64, 128, 256, 512}, "threads of a CTA", false, true},
      {"kUnroll", unroll, "accesses of an operand before the first is used", false, true}};
}

std::vector<Constraint> MapThreads::rules(const Problem& problem, const DeviceInfo&) const {
  const MapProblem& p = map_of(problem);
  return {
      {"the widest access, or half of it; or one element, if the result's neighbours lie apart",
       [p](const Config& c) -> std::optional<std::string> {
         const std::int64_t widest = map_vector(p, is_across(c)), vector = c.at("kVector");
         if (vector == widest || 2 * vector == widest) return std::nullopt;
         if (vector == 1 && map_lies_apart(p, is_across(c))) return std::nullopt;
         return formatted("kVector = {}, of {}", vector, widest);
       },
       {"kAcross", "kVector"}},
      {"each thread of a result has some of what is reduced; of side by side, a warp has",
       [p](const Config& c) -> std::optional<std::string> {
         const std::int64_t threads = c.at("kRowThreads"), steps = steps_of(p, c);
         const bool is_few = !is_across(c) && p.reduction != kMapNone && threads < kWarp / 4 &&
                             2 * threads <= steps;
         if (threads == 1 && p.reduction == kMapNone) return std::nullopt;
         if (!is_few && (threads == 1 || threads < 2 * steps)) return std::nullopt;
         return formatted("{} threads for {} accesses", threads, steps);
       },
       {"kAcross", "kVector", "kRowThreads"}},
      {"a CTA has whole results, and at most 512 threads",
       [](const Config& c) -> std::optional<std::string> {
         if (c.at("kRowThreads") <= c.at("kThreads")) return std::nullopt;
         return formatted("{} threads of {}", c.at("kRowThreads"), c.at("kThreads"));
       },
       {"kRowThreads", "kThreads"}},
      {"registers: a thread has at most 64 values of operands at once",
       [count = operand_count(p)](const Config& c) -> std::optional<std::string> {
         const std::int64_t values = count * c.at("kVector") * c.at("kUnroll");
         if (values <= kMostValues || c.at("kUnroll") == 1) return std::nullopt;
         return formatted("{} values", values);
       },
       {"kVector", "kUnroll"}},
  };
}

// Groups of neighbours of a thread, without any tuning.
std::int64_t wanted_unroll(const MapProblem& p, bool across) {
  if (p.reduction != kMapNone) return across ? 4 : 1;
  const std::int64_t most = map_lies_apart(p, false) ? 4 : 2;
  const std::size_t along = map_unrolled_dimension(p, most);
  const bool repeats = along > 0 && std::ranges::any_of(p.operands, [&](const auto& operand) {
                         return operand && operand->strides[along] == 0;
                       });
  return repeats ? most : 1;
}

// The widest access; if the result's neighbours lie apart, one element, so that a warp's are near
// each other. More at once where operands repeat, and where threads walk across rows. So are the
// winners of the maps of data/map_problems.json on an H200.
std::optional<double> MapThreads::rank(const Problem& problem, const Config& config,
                                       const DeviceInfo& device) const {
  const MapProblem& p = map_of(problem);
  const bool across = is_across(config);
  const auto distance = [](std::int64_t a, std::int64_t b) {
    return std::abs(std::log2(static_cast<double>(a)) - std::log2(static_cast<double>(b)));
  };
  const bool apart = map_lies_apart(p, across);
  const std::int64_t unroll = wanted_unroll(p, across);
  const bool many = p.reduction != kMapNone || (apart && unroll == 1);
  return 100 * distance(config.at("kVector"), apart ? 1 : map_vector(p, across)) +
         10 * distance(config.at("kRowThreads"), wanted_row_threads(p, config, device)) +
         distance(config.at("kThreads"), many ? 256 : 128) +
         distance(config.at("kUnroll"), unroll) + (across ? 0.5 : 0);
}

LaunchPlan MapThreads::plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                            std::span<const int>) const {
  const MapProblem& p = map_of(problem);
  const KernelNeeds needs = kernel_of(p, config);
  KernelLaunch launch;
  launch.shape.waits_for_earlier = device.cc_major >= 9;
  launch.shape.grid[0] =
      static_cast<std::uint32_t>(ceil_div(p.result_count(), map_cta_results(p, config)));
  launch.shape.block[0] = static_cast<std::uint32_t>(needs.threads);
  launch.shape.shared_bytes = static_cast<std::uint32_t>(needs.shared_bytes);
  MapParams params = {};
  params.results = static_cast<unsigned>(p.result_count());
  launch.params = parameter_bytes(params);
  for (int i = 0; i < kMapOut; ++i) {
    const std::size_t at = offsetof(MapParams, in) + sizeof(void*) * static_cast<std::size_t>(i);
    if (p.operands[static_cast<std::size_t>(i)]) {
      launch.pointers.push_back({i, static_cast<std::uint32_t>(at)});
    }
  }
  launch.pointers.push_back({kMapOut, offsetof(MapParams, out)});
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

}  // namespace

std::int64_t map_cta_results(const MapProblem& p, const Config& config) {
  const std::int64_t results = config.at("kThreads") / config.at("kRowThreads");
  const std::int64_t unroll = p.reduction == kMapNone ? config.at("kUnroll") : 1;
  return results * thread_results(p, config) * unroll;
}

const Family& map_threads() {
  static const MapThreads instance;
  return instance;
}

}  // namespace vitune
