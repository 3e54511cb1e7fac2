// generator/linear/sm90_split_k.cpp -- The family sm90_split_k: as sm90, k in parts that a cluster
// adds; for layers of too few tiles for the device.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/checked.h"
#include "core/format.h"
#include "generator/gemm/rules.h"
#include "generator/linear/kernel_spec.h"
#include "generator/linear/sm90.h"

namespace vitune {
namespace {

using Shape = GemmSm90;

constexpr int kRows = 64;  // of a tile: one warpgroup's
constexpr int kLeastSteps = 2;

// Steps of a CTA, at most.
std::int64_t steps_of_part(const LinearProblem& p, const Shape& shape) {
  return ceil_div(ceil_div(p.k, Shape::kDepth), shape.parts);
}

std::int64_t most_stages(const Shape& shape, std::int64_t shared) {
  return std::min(shape.most_stages(static_cast<int>(shared)), Shape::kMostStages);
}

class LinearSm90Parts final : public LinearWgmmaFamily {
 public:
  LinearSm90Parts()
      : LinearWgmmaFamily(
            "sm90_split_k", "split_k", {.block_m = kRows, .groups = 1},
            {{&Shape::block_n,
              {"kBlockN", {32, 48, 64, 80, 96, 128}, "columns of a tile", false, true}},
             {&Shape::stages,
              {"kStages",
               {2, 3, 4, 5, 6, 7, 8},
               "steps in shared memory or on their way",
               false,
               true}},
             {&Shape::parts,
              {"kSplits", {2, 4}, "parts of k, which a cluster adds", false, true}}}) {}
  std::optional<std::string> refusal(const Problem& problem,
                                     const DeviceInfo& device) const override {
    const LinearProblem& p = linear_of(problem);
    if (auto refused = linear_sm90_refusal(p, device)) return refused;
    const std::int64_t steps = ceil_div(p.k, Shape::kDepth);
    if (steps >= 2 * kLeastSteps) return std::nullopt;
    return formatted("{} steps of k are not divided", steps);
  }
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override {
    const LinearProblem& p = linear_of(problem);
    return clocks(p, shape(p, config), device);
  }
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;
  GemmBlock block(const Config& config) const override {
    return {kRows, config.at("kBlockN"), Shape::kDepth * kLeastSteps * config.at("kSplits")};
  }

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
  const std::int64_t sms = sms_of(device, kUsualSms), shared = device.shared_per_block;
  const LinearProblem& p = linear_of(problem);
  std::vector<Constraint> rules = LinearWgmmaFamily::rules(problem, device);
  rules.push_back(shape_rule<Shape>(
      "splits: two steps or more each, for SMs without a tile, at most two CTAs per SM", members(),
      facts(p), {&Shape::block_n, &Shape::parts}, [p, sms](const Shape& s) {
        const std::int64_t units = units_of(s, p.m, p.n);
        return ceil_div(p.k, Shape::kDepth) >= kLeastSteps * s.parts && units <= sms &&
               units * s.parts <= 2 * sms;
      }));
  const auto useful = [p, shared](const Shape& s) {
    return std::min(most_stages(s, shared), std::max<std::int64_t>(steps_of_part(p, s), 2));
  };
  rules.push_back(shape_rule<Shape>(
      "stages: as many as a part has steps or as fit, 8 at most, or one less; half of it for two "
      "CTAs per SM",
      members(), facts(p), {&Shape::block_n, &Shape::stages, &Shape::parts},
      [useful](const Shape& s) {
        const std::int64_t most = useful(s);
        return s.stages <= most && (s.stages >= most - 1 || s.stages == most / 2);
      },
      [useful](const Shape& s) { return formatted("{} are of use", useful(s)); }));
  return rules;
}

// Of each number of parts the tiles that rank first, if no SM gets a second one.
std::vector<Config> LinearSm90Parts::defaults(const Problem& problem, const DeviceInfo& device,
                                              const ParameterSpace& space) const {
  const LinearProblem& p = linear_of(problem);
  const auto cost = [&](const Config& config) { return rank(problem, config, device); };
  std::vector<Config> best;  // of each number of parts
  for (const std::int64_t parts : {4, 2}) {
    std::vector<Config> configs;
    for (const std::int64_t columns : {32, 64, 96, 128}) {
      Config config = config_of(members(), {columns, 0, parts});
      const Shape tile = shape(p, config);
      config.set("kStages", std::min(most_stages(tile, device.shared_per_block),
                                     std::max<std::int64_t>(steps_of_part(p, tile), 2)));
      if (units_of(tile, p.m, p.n) * parts > sms_of(device, kUsualSms)) continue;
      config = whole(std::move(config));
      if (!space.explain(config)) configs.push_back(std::move(config));
    }
    for (Config& config : cheapest(configs, 1, cost)) best.push_back(std::move(config));
  }
  return cheapest(best, best.size(), cost);
}

}  // namespace

const GemmFamily& linear_sm90_split_k() {
  static const auto& instance = *new LinearSm90Parts;
  return instance;
}

}  // namespace vitune
