// generator/linear/sm90_space.cpp -- Which problems the family sm90 serves, its tunables, and good
// values without tuning.
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

constexpr std::int64_t kMostBoxStride = std::int64_t{1} << 40;  // bytes, exclusive
constexpr std::int64_t kWidestTile = 256;

// Forms worth weighing, each with as many stages as fit. Few of them are pairs: two CTAs that share
// an operand gain where rows are few and tiles wide, and nothing elsewhere.
struct Form {
  std::int64_t m, n, groups, schedule, pair;
};
constexpr Form kForms[] = {
    {192, 192, 3, Shape::kShared, 0},   {192, 144, 3, Shape::kShared, 0},
    {192, 128, 3, Shape::kShared, 0},   {192, 96, 3, Shape::kShared, 0},
    {128, 256, 2, Shape::kShared, 0},   {256, 176, 2, Shape::kShared, 0},
    {256, 128, 2, Shape::kShared, 0},   {128, 192, 2, Shape::kPingPong, 0},
    {192, 128, 2, Shape::kPingPong, 0}, {128, 128, 2, Shape::kPingPong, 0},
    {192, 96, 2, Shape::kPingPong, 0},  {64, 192, 2, Shape::kPingPong, 0},
    {64, 128, 2, Shape::kPingPong, 0},  {64, 160, 1, Shape::kShared, 0},
    {64, 128, 1, Shape::kShared, 0},    {64, 96, 1, Shape::kShared, 0},
    {64, 96, 1, Shape::kShared, 2},     {64, 80, 1, Shape::kShared, 0},
    {64, 80, 1, Shape::kShared, 2},     {64, 64, 1, Shape::kShared, 0},
    {64, 48, 1, Shape::kShared, 0},     {64, 32, 1, Shape::kShared, 0},
};

std::int64_t steps_of(const LinearProblem& p) { return ceil_div(p.k, std::int64_t{Shape::kDepth}); }

// Wide stores are worth a stage in ping-pong and where tiles have few steps, but not the fourth
// stage of a long loop.
bool wants_wide_stores(const Form& form, std::int64_t steps, std::int64_t stages) {
  constexpr std::int64_t kFewSteps = 6;
  const bool is_known = form.schedule == Shape::kPingPong || form.groups == 3;
  return is_known && (form.schedule == Shape::kPingPong || steps <= kFewSteps) &&
         stages >= std::min<std::int64_t>(4, steps / 2);
}

}  // namespace

std::optional<std::string> linear_sm90_refusal(const LinearProblem& p, const DeviceInfo& device) {
  const auto fits = [](std::int64_t rows, std::int64_t stride, ElementType type) {
    const std::int64_t bytes = stride * element_bytes(type);
    return rows == 1 || (bytes % 16 == 0 && bytes < kMostBoxStride);
  };
  if (device.cc_major != 9 || device.cc_minor != 0) {
    return std::string("wgmma is of compute capability 9.0 alone");
  }
  if (p.aux && (p.moments > 0 || p.out_period > 0)) {
    return std::string("a second result is stored beside one without moments and gaps");
  }
  if (p.moments > kWidestTile) {
    return formatted("moments of {} columns: a tile has {} at most", p.moments, kWidestTile);
  }
  // Seen on an H200: a store by a tensor map writes the whole sixteen bytes that its last column is
  // in, and so what lies behind the row.
  if (p.n % 8 != 0) return formatted("{} columns: results are stored in a multiple of 8", p.n);
  if (p.alignment < 16) return formatted("tensor maps need 16-byte alignment, not {}", p.alignment);
  if (!fits(p.m, p.x_row, p.type) || !fits(p.w_rows(), p.w_row, p.type) ||
      (p.out_period == 0 && !fits(p.m, p.out_row, p.out)) ||
      (p.residual && p.residual_period == 0 && !fits(p.m, p.residual_row, p.out)) ||
      (p.aux && !fits(p.m, p.aux_row, p.type)) || (p.has_pre() && !fits(p.m, p.pre_row, p.type)) ||
      (p.post && !fits(p.m, p.post_row, p.type))) {
    return std::string(
        "tensor maps need rows of x, w, residual, pre and results that begin at 16 bytes");
  }
  if (p.out_period > 0 && p.out_row % 8 != 0) {
    return std::string("rows with gaps between them are stored by 16 bytes");
  }
  return std::nullopt;
}

// One value of kSplits: configs that are stored have it.
LinearSm90::LinearSm90()
    : LinearWgmmaFamily(
          "sm90", "gemm", {},
          {{&Shape::block_m, {"kBlockM", {64, 128, 192, 256}, "rows of a tile", false, true}},
           {&Shape::block_n,
            {"kBlockN",
             {32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256},
             "columns of a tile",
             false,
             true}},
           {&Shape::stages,
            {"kStages",
             {2, 3, 4, 5, 6, 7, 8},
             "steps in shared memory or on their way",
             false,
             true}},
           {&Shape::parts, {"kSplits", {1}, "parts of k", false, true}},
           {&Shape::groups, {"kGroups", {1, 2, 3}, "warpgroups that compute", false, true}},
           {&Shape::schedule, {"kSchedule", {0, 1}, "0 shared tiles, 1 ping-pong", true, true}},
           {&Shape::pair, {"kPair", {0, 1, 2}, "two CTAs share x (1) or w (2)", true, true}},
           {&Shape::wide_stores,
            {"kWidePanels", {0, 1}, "64 columns are staged and stored at once, not 32", true}},
           {&Shape::lead,
            {"kLead", {0, 1, 2}, "steps by which a warpgroup leads the next one", false, true}}}) {}

std::vector<Constraint> LinearSm90::rules(const Problem& problem, const DeviceInfo& device) const {
  const LinearProblem& p = linear_of(problem);
  std::vector<Constraint> rules = LinearWgmmaFamily::rules(problem, device);
  append(rules, ring_rules(members(), facts(p), p.m, p.n, device.shared_per_block));
  return rules;
}

ConfigWords LinearSm90::own_words(const Config& config) const {
  constexpr const char* kSchedules[] = {"coop ", "ping "};
  constexpr const char* kPairs[] = {"", " pair", " pair_m"};
  const auto value = [&](const char* name) { return config.find(name).value_or(0); };
  // Trials of older versions may have another one, which has no word.
  const std::int64_t schedule = value("kSchedule");
  const bool is_known = schedule == Shape::kShared || schedule == Shape::kPingPong;
  ConfigWords words = {
      formatted("sm90 {}{}x{} {}g s{}{}{}", is_known ? kSchedules[schedule] : "", value("kBlockM"),
                value("kBlockN"), value("kGroups"), value("kStages"),
                kPairs[std::clamp<std::int64_t>(value("kPair"), 0, 2)],
                value("kWidePanels") == 0 ? "" : " wide"),
      {"kBlockM", "kBlockN", "kGroups", "kStages", "kPair", "kWidePanels"}};
  if (is_known) words.told.emplace_back("kSchedule");
  return words;
}

std::optional<double> LinearSm90::rank(const Problem& problem, const Config& config,
                                       const DeviceInfo& device) const {
  const LinearProblem& p = linear_of(problem);
  return clocks(p, shape(p, config), device);
}

std::vector<Config> LinearSm90::defaults(const Problem& problem, const DeviceInfo& device,
                                         const ParameterSpace& space) const {
  constexpr std::size_t kMost = 3;
  const LinearProblem& p = linear_of(problem);
  std::vector<Config> configs;
  const auto weigh = [&](const Form& form) {
    for (const std::int64_t wide : {1, 0}) {
      Config config = config_of(
          members(), {form.m, form.n, 0, 1, form.groups, form.schedule, form.pair, wide, 0});
      const int fit = shape(p, config).most_stages(static_cast<int>(device.shared_per_block));
      config.set("kStages", std::min(fit, Shape::kMostStages));
      if (wide != 0 && !wants_wide_stores(form, steps_of(p), fit)) continue;
      config = whole(std::move(config));
      if (space.explain(config)) continue;
      configs.push_back(std::move(config));
      break;
    }
  };
  for (const Form& form : kForms) weigh(form);
  // Few rows with wide blocks of moments, which no form's tile has whole.
  if (configs.empty() && p.moments > 0) weigh({64, p.moments, 1, Shape::kShared, 0});
  return cheapest(configs, kMost,
                  [&](const Config& config) { return rank(problem, config, device); });
}

const GemmFamily& linear_sm90() {
  static const auto& instance = *new LinearSm90;
  return instance;
}

}  // namespace vitune
