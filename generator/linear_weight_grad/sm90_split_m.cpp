// generator/linear_weight_grad/sm90_split_m.cpp -- The family sm90_split_m: as sm90, the rows in
// parts that a cluster adds, in one kernel; for products of too few tiles for the device.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "generator/gemm/rules.h"
#include "generator/linear_weight_grad/sm90.h"
#include "generator/linear_weight_grad/sm90_clocks.h"
#include "templates/linear_weight_grad/geometry_split_m.cuh"
#include "templates/linear_weight_grad/sm90_params.cuh"

namespace vitune {
namespace {

using Shape = WeightGradSplitM;

constexpr char kEntry[] = "vitune_weight_grad";

const Tunables<Shape>& tunables_of_split_m() {
  static const auto& all = *new Tunables<Shape>{
      {&Shape::block_m, {"kBlockM", {64, 128, 192, 256}, "rows of a tile of dw", false, true}},
      {&Shape::block_n, {"kBlockN", {64, 128, 192, 256}, "columns of a tile", false, true}},
      {&Shape::stages,
       {"kStages", {2, 3, 4, 5, 6, 7, 8}, "steps in shared memory or on their way", false, true}},
      {&Shape::row_parts,
       {"kSplits",
        {2, 3, 4, 5, 6, 7, 8},
        "parts of the rows of dy and x, which a cluster adds",
        false,
        true}},
      {&Shape::groups, {"kGroups", {1, 2, 3}, "warpgroups that compute", false, true}},
      {&Shape::shares_row_sums,
       {"kSharedRowSums",
        {0, 1},
        "each tile sums dy's rows of some steps and a second kernel adds these; else the first "
        "tile",
        true}},
  };
  return all;
}

Shape facts_of(const LinearWeightGradProblem& p) {
  Shape facts;
  facts.a_across = facts.b_across = 1;
  facts.ones = p.bias;
  return facts;
}

Shape shape_of(const LinearWeightGradProblem& p, const Config& config) {
  return read_tunables(tunables_of_split_m(), config, facts_of(p));
}

// As the kernel's cluster and launch know it.
GemmSm90 clustered(const Shape& shape) {
  GemmSm90 whole = shape;
  whole.parts = shape.row_parts;
  return whole;
}

// What a second kernel is to add: shares of the sums of dy's rows.
WeightGradSums sums_of(const LinearWeightGradProblem& p, const Shape& shape) {
  if (!shape.shares_row_sums) return {};
  return {1, shape.row_parts * ceil_div(p.k, std::int64_t{shape.block_n})};
}

// Steps of a CTA, at most.
std::int64_t steps_of_part(const LinearWeightGradProblem& p, const Shape& shape) {
  return ceil_div(ceil_div(p.m, std::int64_t{Shape::kDepth}), std::int64_t{shape.row_parts});
}

// Stages that fit and that a part's steps can fill.
std::int64_t useful_stages(const LinearWeightGradProblem& p, const Shape& shape,
                           std::int64_t shared) {
  const std::int64_t fit = shape.most_stages(static_cast<int>(shared));
  const std::int64_t steps = std::max<std::int64_t>(steps_of_part(p, shape), 2);
  return std::min({fit, std::int64_t{Shape::kMostStages}, steps});
}

// The share of SMs that clusters of so many CTAs fill, which lie in one GPC each: measured.
double filled_by_clusters(int ctas) {
  if (ctas == 2) return 1;
  return ctas == 4 ? 0.9 : 0.8;
}

class WeightGradSplitMFamily final : public WeightGradWgmmaFamily {
 public:
  WeightGradSplitMFamily() : WeightGradWgmmaFamily("sm90_split_m") {}

  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
    if (auto refused = weight_grad_sm90_refusal(p, device)) return refused;
    if (p.scale) return "the scale's gradient is a sum over whole rows of dw";
    const std::int64_t steps = ceil_div(p.m, std::int64_t{Shape::kDepth});
    if (steps >= 2) return std::nullopt;
    return formatted("{} rows are not divided", p.m);
  }
  std::vector<Parameter> tunables() const override { return parameters_of(tunables_of_split_m()); }
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override;
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;

  std::string templates() const override {
    return "#include \"linear_weight_grad/split_m_sm90.cuh\"\n"
           "#include \"linear_weight_grad/finish.cuh\"\n";
  }
  std::string source(const Problem& problem, const Config& config) const override {
    const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
    const Shape shape = shape_of(p, config);
    const WeightGradSums sums = sums_of(p, shape);
    const std::string text =
        config_source(templates(), weight_grad_facts_text(p) +
                                       geometry_text("WeightGradSplitM", shape) +
                                       weight_grad_finish_text(p, sums)) +
        entry_text(clustered(shape), kEntry, "WeightGradParams", "WeightGradTensorMaps",
                   "weight_grad_split_m_sm90");
    return sums.column_parts > 0 ? text + weight_grad_finish_entry() : text;
  }
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override {
    const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
    const Shape shape = shape_of(p, config);
    std::vector<KernelNeeds> kernels = {{kEntry, shape.threads(), shape.shared_bytes()}};
    if (shape.shares_row_sums) kernels.push_back(weight_grad_finish(p));
    return kernels;
  }
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;

 private:
  ConfigWords own_words(const Config& config) const override {
    const auto value = [&](const char* name) { return config.find(name).value_or(0); };
    return {formatted("sm90_split_m {}x{} {}g s{} {}p{}", value("kBlockM"), value("kBlockN"),
                      value("kGroups"), value("kStages"), value("kSplits"),
                      value("kSharedRowSums") != 0 ? " shared" : ""),
            {"kBlockM", "kBlockN", "kGroups", "kStages", "kSplits", "kSharedRowSums"}};
  }
};

std::vector<Constraint> WeightGradSplitMFamily::rules(const Problem& problem,
                                                      const DeviceInfo& device) const {
  const std::int64_t sms = sms_of(device, kUsualSms), shared = device.shared_per_block;
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const Tunables<Shape>& all = tunables_of_split_m();
  const Shape facts = facts_of(p);
  std::vector<Constraint> rules = tile_rules(all, facts, p.n, p.k);
  append(rules, geometry_rules(gemm_sm90_rules().all, all, facts));
  append(rules, geometry_rules(weight_grad_split_m_rules().all, all, facts));
  rules.push_back(shape_rule<Shape>(
      "splits: a step or more each, for SMs without a tile, at most two CTAs per SM", all, facts,
      {&Shape::block_m, &Shape::block_n, &Shape::row_parts}, [p, sms](const Shape& s) {
        const std::int64_t units = units_of(s, p.n, p.k);
        return ceil_div(p.m, std::int64_t{Shape::kDepth}) >= s.row_parts && units <= sms &&
               units * s.row_parts <= 2 * sms;
      }));
  const auto useful = [p, shared](const Shape& s) { return useful_stages(p, s, shared); };
  rules.push_back(shape_rule<Shape>(
      "stages: as many as a part has steps or as fit, 8 at most, or one less", all, facts,
      {&Shape::block_m, &Shape::block_n, &Shape::stages, &Shape::row_parts, &Shape::groups},
      [useful](const Shape& s) {
        const std::int64_t most = useful(s);
        return s.stages <= most && s.stages >= most - 1;
      },
      [useful](const Shape& s) { return formatted("{} are of use", useful(s)); }));
  return rules;
}

// As sm90 counts them: a part's steps, then the way of its sums to the CTAs that finish them; where
// dy's rows are summed, by the first tile of a row of tiles.
std::optional<double> WeightGradSplitMFamily::rank(const Problem& problem, const Config& c,
                                                   const DeviceInfo& device) const {
  using Clocks = WeightGradClocks;
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const Shape shape = shape_of(p, c);
  const double sms = static_cast<double>(sms_of(device, kUsualSms));
  const double m = shape.block_m, n = shape.block_n;
  const double across = shape.shares_row_sums ? std::ceil(static_cast<double>(p.k) / n) : 1;
  const double row_sums = p.bias ? m / across : 0;
  const double start = Clocks::kStart + (shape.shares_row_sums ? Clocks::kFinish : 0);
  const double at_once = sms * filled_by_clusters(shape.row_parts) / shape.row_parts;
  return start + Clocks::rounds(units_of(shape, p.n, p.k), at_once) *
                     (Clocks::steps(shape, steps_of_part(p, shape), row_sums) +
                      4 * m * n / Clocks::kMeetBytes);
}

std::vector<Config> WeightGradSplitMFamily::defaults(const Problem& problem,
                                                     const DeviceInfo& device,
                                                     const ParameterSpace& space) const {
  constexpr std::size_t kMost = 2;
  constexpr std::int64_t kParts[] = {2, 4};  // clusters that fill the device
  struct Form {
    std::int64_t m, n, groups;
  };
  constexpr Form kForms[] = {{192, 192, 3}, {192, 64, 3}, {128, 256, 2}, {128, 192, 2},
                             {128, 128, 2}, {128, 64, 2}, {64, 256, 1},  {64, 192, 1},
                             {64, 128, 1},  {64, 64, 1}};
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  std::vector<Config> fitting;
  for (const Form& form : kForms) {
    for (const std::int64_t parts : kParts) {
      for (const std::int64_t shares : {0, 1}) {
        Config own =
            config_of(tunables_of_split_m(), {form.m, form.n, 0, parts, form.groups, shares});
        own.set("kStages", useful_stages(p, shape_of(p, own), device.shared_per_block));
        Config config = whole(std::move(own));
        if (!space.explain(config)) fitting.push_back(std::move(config));
      }
    }
  }
  return cheapest(fitting, kMost,
                  [&](const Config& config) { return rank(problem, config, device); });
}

LaunchPlan WeightGradSplitMFamily::plan(const Problem& problem, const Config& config,
                                        const DeviceInfo& device,
                                        std::span<const int> resident) const {
  const LinearWeightGradProblem& p = linear_weight_grad_of(problem);
  const Shape shape = shape_of(p, config);
  LaunchPlan plan;
  KernelLaunch& launch = plan.kernels.emplace_back();
  launch.shape = launch_shape(clustered(shape), units_of(shape, p.n, p.k), device, resident);
  launch.shape.shared_bytes = static_cast<std::uint32_t>(shape.shared_bytes());
  launch.params = parameter_bytes(weight_grad_params(p));
  const WeightGradSums sums = sums_of(p, shape);
  launch.pointers = weight_grad_pointers();
  for (const PointerSlot& slot : sums.pointers(p)) launch.pointers.push_back(slot);
  launch.map_bytes = sizeof(WeightGradTensorMaps);
  launch.maps = weight_grad_maps(p, shape);
  if (sums.column_parts > 0) {
    plan.kernels.push_back(weight_grad_finish_launch(p, sums, 1, device));
  }
  plan.scratch_bytes = sums.bytes(p);
  return plan;
}

}  // namespace

const GemmFamily& weight_grad_sm90_split_m() {
  static const WeightGradSplitMFamily instance;
  return instance;
}

}  // namespace vitune
