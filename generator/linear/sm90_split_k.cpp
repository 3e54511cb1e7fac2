// generator/linear/sm90_split_k.cpp -- The family sm90_split_k: as sm90, k in parts that a cluster
// adds; for layers of too few tiles for the device.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "generator/linear/kernel_spec.h"
#include "generator/linear/sm90.h"
#include "templates/linear/sm90_params.cuh"

namespace vitune {
namespace {

constexpr std::int64_t kRows = 64;  // of a tile: one warpgroup's
constexpr std::int64_t kLeastSteps = 2;
constexpr std::int64_t kMostStages = 8;
constexpr std::int64_t kBeforeSums = 24;  // bytes, at most: their barrier, then up to 16

// As sm90 would have a part.
Config whole_config(const Config& config) {
  return {{"kBlockM", kRows},
          {"kBlockN", config.at("kBlockN")},
          {"kStages", config.find("kStages").value_or(0)},
          {"kGroups", 1},
          {"kSchedule", LinearSm90Shape::kShared},
          {"kPair", 0},
          {"kLead", 0}};
}

// As templates/linear/split_k_sm90.cuh has it.
struct Parts {
  Parts(const LinearProblem& problem, const Config& config)
      : parts(config.find("kSplits").value_or(1)), whole(problem, whole_config(config)) {
    whole.shared_after = kBeforeSums + sum_bytes();
  }

  std::int64_t sum_bytes() const { return kRows * whole.block_n * 4; }
  std::int64_t shared_bytes() const {
    return ceil_div(whole.shared_bytes() + 8, std::int64_t{16}) * 16 + sum_bytes();
  }
  std::int64_t most_stages(std::int64_t shared) const {
    return std::min(whole.most_stages(shared - whole.shared_after), kMostStages);
  }
  std::int64_t steps() const { return ceil_div(whole.steps(), parts); }  // of a CTA, at most
  std::int64_t ctas() const { return whole.units() * parts; }

  std::int64_t parts;
  LinearSm90Shape whole;
};

class LinearSm90Parts final : public LinearFamily {
 public:
  std::string_view name() const override { return "sm90_split_k"; }
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    const LinearProblem& p = linear_of(problem);
    if (auto refused = linear_sm90_refusal(p, device)) return refused;
    const std::int64_t steps = ceil_div(p.k, LinearSm90Shape::kBlockK);
    if (steps >= 2 * kLeastSteps) return std::nullopt;
    return formatted("{} steps of k are not divided", steps);
  }
  std::vector<Parameter> tunables() const override {
    return {
        {"kBlockN", {32, 48, 64, 80, 96, 128}, "columns of a tile", false, true},
        {"kStages", {2, 3, 4, 5, 6, 7, 8}, "steps in shared memory or on their way", false, true},
        {"kSplits", {2, 4}, "parts of k, which a cluster adds", false, true}};
  }
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;
  std::string source(const Problem& problem, const Config& config) const override;
  int harmless_spill_bytes() const override { return 16; }
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override {
    const Parts parts(linear_of(problem), config);
    return {
        {"vitune_linear_split_k", static_cast<int>(parts.whole.threads()), parts.shared_bytes()}};
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
  LinearBlock block(const Config& config) const override {
    return {kRows, config.at("kBlockN"),
            LinearSm90Shape::kBlockK * kLeastSteps * config.at("kSplits")};
  }
  std::string templates() const override { return "#include \"linear/split_k_sm90.cuh\"\n"; }
  bool is_of_one_architecture() const override { return true; }
  bool reads_tensor_maps(const Config&) const override { return true; }

 private:
  ConfigWords own_words(const Config& config) const override {
    const auto value = [&](const char* name) { return config.find(name).value_or(0); };
    return {formatted("sm90_split_k {}x{} {}p s{}", kRows, value("kBlockN"), value("kSplits"),
                      value("kStages")),
            {"kBlockN", "kSplits", "kStages"}};
  }
};

std::vector<Constraint> LinearSm90Parts::rules(const Problem& problem,
                                               const DeviceInfo& device) const {
  const std::int64_t sms = linear_sm90_sms(device), shared = device.shared_per_block;
  const LinearProblem& p = linear_of(problem);
  return {
      {"kBlockN: fewer than twice the columns there are, or 64",
       [p](const Config& c) { return check_linear_block(c.at("kBlockN"), p.n); },
       {"kBlockN"}},
      {"w as [k, n]: tiles of whole panels of 64 columns",
       [p](const Config& c) { return check_linear_panels(p, c.at("kBlockN")); },
       {"kBlockN"}},
      {"residual: in one slot of the ring",
       [p](const Config& c) -> std::optional<std::string> {
         const LinearSm90Shape whole(p, whole_config(c));
         if (!p.residual || whole.stores() <= std::max<std::int64_t>(whole.slot_panels(), 1)) {
           return std::nullopt;
         }
         return formatted("{} panels, a slot holds {}", whole.stores(), whole.slot_panels());
       },
       {"kBlockN"}},
      {"moments: whole blocks of a tile's columns",
       [p](const Config& c) { return check_linear_moments(p, c.at("kBlockN")); },
       {"kBlockN"}},
      {"splits: two steps or more each, for SMs without a tile, at most two CTAs per SM",
       [p, sms](const Config& c) -> std::optional<std::string> {
         const Parts parts(p, c);
         if (parts.whole.steps() < kLeastSteps * parts.parts) {
           return formatted("{} parts of {} steps", parts.parts, parts.whole.steps());
         }
         if (parts.whole.units() <= sms && parts.ctas() <= 2 * sms) return std::nullopt;
         return formatted("{} CTAs", parts.ctas());
       },
       {"kBlockN", "kSplits"}},
      {"stages: as many as a part has steps or as fit, 8 at most, or one less; half of it for two "
       "CTAs per SM",
       [p, shared](const Config& c) -> std::optional<std::string> {
         const Parts parts(p, c);
         const std::int64_t stages = c.at("kStages"), fit = parts.most_stages(shared);
         const std::int64_t most = std::min(fit, std::max<std::int64_t>(parts.steps(), 2));
         if (stages > most) return formatted("{} stages, {} are of use", stages, most);
         if (stages >= most - 1 || stages == most / 2) return std::nullopt;
         return formatted("{} stages, {} are of use", stages, most);
       },
       {"kBlockN", "kSplits", "kStages"}},
  };
}

// Of each number of parts the narrowest tiles of which no SM gets a second one.
std::vector<Config> LinearSm90Parts::defaults(const Problem& problem, const DeviceInfo& device,
                                              const ParameterSpace& space) const {
  const std::vector<std::int64_t> widths = tunables().front().values;
  std::vector<Config> configs;
  for (const std::int64_t parts : {4, 2}) {
    for (const std::int64_t columns : widths) {
      Config config = {{"kBlockN", columns}, {"kSplits", parts}};
      const Parts shape(linear_of(problem), config);
      const std::int64_t of_use = std::max<std::int64_t>(shape.steps(), 2);
      config.set("kStages", std::min(shape.most_stages(device.shared_per_block), of_use));
      if (shape.ctas() > linear_sm90_sms(device)) continue;
      config = whole(std::move(config));
      if (space.explain(config)) continue;
      configs.push_back(std::move(config));
      break;
    }
  }
  return configs;
}

std::string LinearSm90Parts::source(const Problem& problem, const Config& config) const {
  const LinearProblem& p = linear_of(problem);
  const Parts parts(p, config);
  const KernelNeeds entry = kernels(problem, config).front();
  std::string text = "namespace vitune {\nstruct Config {\n" + linear_sm90_facts_text(p);
  const Config whole = whole_config(config);
  for (const char* const name :
       {"kBlockM", "kBlockN", "kStages", "kGroups", "kSchedule", "kPair", "kLead"}) {
    text += linear_number(name, whole.at(name));
  }
  text += linear_number("kParts", parts.parts) + linear_flag("kWidePanels", false) +
          linear_number("kCtaThreads", entry.threads) +
          linear_number("kStoreBuffers", parts.whole.store_buffers()) +
          linear_number("kSharedBytes", parts.whole.shared_bytes()) +
          linear_number("kAllBytes", entry.shared_bytes) +
          "};\n}  // namespace vitune\n\n#include \"linear/split_k_sm90.cuh\"\n";
  return text +
         formatted(
             "\nextern \"C\" __global__ void __cluster_dims__({}, 1, 1) __launch_bounds__({}, 1)\n"
             "{}(const __grid_constant__ vitune::LinearParams params,\n"
             "   const __grid_constant__ vitune::{} maps) {{\n"
             "  vitune::linear_split_k_sm90<vitune::Config>(params, maps);\n}}\n",
             parts.parts, entry.threads, entry.entry, linear_sm90_maps_type(p));
}

LaunchPlan LinearSm90Parts::plan(const Problem& problem, const Config& config, const DeviceInfo&,
                                 std::span<const int>) const {
  const LinearProblem& p = linear_of(problem);
  const Parts parts(p, config);
  const KernelNeeds entry = kernels(problem, config).front();
  KernelLaunch launch;
  launch.kernel = 0;
  launch.shape.block[0] = static_cast<std::uint32_t>(entry.threads);
  launch.shape.grid[0] = static_cast<std::uint32_t>(parts.ctas());
  launch.shape.shared_bytes = static_cast<std::uint32_t>(entry.shared_bytes);
  launch.shape.waits_for_earlier = true;  // wait_for_earlier_grids() in templates
  launch.params = parameter_bytes(linear_params(p));
  launch.pointers = linear_pointers(p);
  launch.map_bytes = static_cast<std::size_t>(parts.whole.map_bytes());
  launch.maps = parts.whole.maps();
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

}  // namespace

const LinearFamily& linear_sm90_split_k() {
  static const LinearSm90Parts instance;
  return instance;
}

}  // namespace vitune
