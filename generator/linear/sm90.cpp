// generator/linear/sm90.cpp -- The family sm90: wgmma, copies by tensor maps, one launch.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear/sm90.h"

#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "generator/linear/kernel_spec.h"
#include "templates/linear/sm90_params.cuh"

namespace vitune {
ConfigWords LinearSm90::own_words(const Config& config) const {
  constexpr const char* kSchedules[] = {"coop ", "ping "};
  constexpr const char* kPairs[] = {"", " pair", " pair_m"};
  const auto value = [&](const char* name) { return config.find(name).value_or(0); };
  // Trials of older versions may have another one, which has no word.
  const std::int64_t schedule = value("kSchedule");
  const bool is_known =
      schedule == LinearSm90Shape::kShared || schedule == LinearSm90Shape::kPingPong;
  ConfigWords words = {
      formatted("sm90 {}{}x{} {}g s{}{}{}", is_known ? kSchedules[schedule] : "", value("kBlockM"),
                value("kBlockN"), value("kGroups"), value("kStages"),
                kPairs[std::clamp<std::int64_t>(value("kPair"), 0, 2)],
                value("kWidePanels") == 0 ? "" : " wide"),
      {"kBlockM", "kBlockN", "kGroups", "kStages", "kPair", "kWidePanels"}};
  if (is_known) words.told.emplace_back("kSchedule");
  return words;
}

std::string LinearSm90::source(const Problem& problem, const Config& config) const {
  const LinearProblem& p = linear_of(problem);
  const LinearSm90Shape shape(p, config);
  const KernelNeeds entry = kernels(problem, config).front();
  std::string text = "namespace vitune {\nstruct Config {\n" + linear_sm90_facts_text(p);
  for (const char* const name :
       {"kBlockM", "kBlockN", "kStages", "kGroups", "kSchedule", "kPair", "kLead"}) {
    text += linear_number(name, config.at(name));
  }
  text += linear_number("kCtaThreads", shape.threads()) +
          linear_flag("kWidePanels", shape.has_wide_panels) +
          linear_number("kStoreBuffers", shape.store_buffers()) +
          linear_number("kSharedBytes", shape.shared_bytes()) +
          "};\n}  // namespace vitune\n\n#include \"linear/gemm_sm90.cuh\"\n";
  // The size of its clusters is a fact of the kernel: an ordinary launch has them too.
  const std::string cluster = shape.pair > 0 ? "__cluster_dims__(2, 1, 1) " : "";
  return text + formatted(
                    "\nextern \"C\" __global__ void {}__launch_bounds__({}, 1)\n"
                    "{}(const __grid_constant__ vitune::LinearParams params,\n"
                    "   const __grid_constant__ vitune::{} maps) {{\n"
                    "  vitune::linear_gemm_sm90<vitune::Config>(params, maps);\n}}\n",
                    cluster, entry.threads, entry.entry, linear_sm90_maps_type(p));
}

std::vector<KernelNeeds> LinearSm90::kernels(const Problem& problem, const Config& config) const {
  const LinearSm90Shape shape(linear_of(problem), config);
  return {{"vitune_linear", static_cast<int>(shape.threads()), shape.shared_bytes()}};
}

LaunchPlan LinearSm90::plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                            std::span<const int> resident) const {
  const LinearProblem& p = linear_of(problem);
  const LinearSm90Shape shape(p, config);
  const KernelNeeds entry = kernels(problem, config).front();
  KernelLaunch launch;
  launch.kernel = 0;
  // Clusters that stay: as many as the device holds at once.
  const std::int64_t room = std::max(device.sm_count, 1) * std::max(resident.front(), 1);
  const std::int64_t clusters = std::max<std::int64_t>(room / shape.cluster(), 1);
  launch.shape.grid[0] =
      static_cast<std::uint32_t>(std::min(shape.units(), clusters) * shape.cluster());
  launch.shape.block[0] = static_cast<std::uint32_t>(entry.threads);
  launch.shape.shared_bytes = static_cast<std::uint32_t>(entry.shared_bytes);
  launch.shape.waits_for_earlier = true;  // wait_for_earlier_grids() in templates
  launch.params = parameter_bytes(linear_params(p));
  launch.pointers = linear_pointers(p);
  launch.map_bytes = static_cast<std::size_t>(shape.map_bytes());
  launch.maps = shape.maps();
  LaunchPlan plan;
  plan.kernels.push_back(std::move(launch));
  return plan;
}

LinearSm90Shape::LinearSm90Shape(const LinearProblem& problem, const Config& config)
    : block_m(config.at("kBlockM")),
      block_n(config.at("kBlockN")),
      stages(config.find("kStages").value_or(0)),
      groups(config.at("kGroups")),
      schedule(config.at("kSchedule")),
      pair(config.find("kPair").value_or(0)),
      lead(config.find("kLead").value_or(0)),
      has_wide_panels(config.find("kWidePanels").value_or(0) != 0),
      problem_(problem) {}

std::int64_t LinearSm90Shape::store_columns() const {
  if (has_wide_panels) return 64;
  return block_n % 32 == 0 ? 32 : 16;
}

std::int64_t LinearSm90Shape::store_row_bytes() const {
  return store_columns() * element_bytes(problem_.out);
}

bool LinearSm90Shape::copies_residual() const {
  return problem_.has_pre() || (problem_.residual && problem_.residual_period == 0);
}

bool LinearSm90Shape::stages_residual() const {
  return copies_residual() && (schedule == kPingPong || stores() == 1);
}

std::int64_t LinearSm90Shape::least_store_buffers() const {
  return stages_residual() ? std::min<std::int64_t>(stores(), 2) : 2;
}

std::int64_t LinearSm90Shape::store_buffers() const {
  constexpr std::int64_t kMost = 8;  // residuals on their way
  const std::int64_t least = least_store_buffers();
  if (!stages_residual()) return least;
  const std::int64_t room = kSharedBytes - shared_after - bytes_with(least);
  return std::clamp(least + room / (4 * groups * buffer_bytes()), least,
                    std::max(least, std::min(stores(), kMost)));
}

// A warp's, with its barrier.
std::int64_t LinearSm90Shape::buffer_bytes() const {
  return 16 * store_row_bytes() + (stages_residual() ? 8 : 0);
}

// A warp's, for what is written beside the result.
std::int64_t LinearSm90Shape::second_bytes() const {
  constexpr std::int64_t kBuffers = 2;
  return problem_.aux || problem_.post ? kBuffers * 16 * store_columns() * 2 : 0;
}

std::int64_t LinearSm90Shape::bytes_with(std::int64_t buffers) const {
  return stages * (stage_bytes() + 16) + other_bytes(buffers);
}

std::int64_t LinearSm90Shape::other_bytes(std::int64_t buffers) const {
  const std::int64_t arrays =
      (problem_.has_mean() ? 1 : 0) + (problem_.bias ? 1 : 0) + (problem_.scale ? 1 : 0);
  constexpr std::int64_t kMerged = 2;
  const bool is_merged = problem_.norm == LinearNorm::kMoments;
  return groups * (4 * (buffers * buffer_bytes() + second_bytes()) + block_n * 4 * arrays + 8) +
         (is_merged ? kMerged * (block_m * 8 + 16) : 0);
}

std::int64_t LinearSm90Shape::most_stages(std::int64_t shared) const {
  return (shared - other_bytes(least_store_buffers())) / (stage_bytes() + 16);
}

std::int64_t LinearSm90Shape::units() const {
  const std::int64_t across = ceil_div(problem_.n, block_n), down = ceil_div(problem_.m, block_m);
  return (pair == 1 ? ceil_div(across, std::int64_t{2}) : across) *
         (pair == 2 ? ceil_div(down, std::int64_t{2}) : down);
}

std::int64_t LinearSm90Shape::steps() const { return ceil_div(problem_.k, kBlockK); }

std::vector<TensorMapSlot> LinearSm90Shape::maps() const {
  const auto matrix = [](LinearTensor tensor, std::size_t at, std::int64_t columns,
                         std::int64_t rows, std::int64_t stride, std::int64_t box_columns,
                         std::int64_t box_rows) {
    return TensorMapSlot{.rank = 2,
                         .tensor = tensor,
                         .at = static_cast<std::uint32_t>(at),
                         .sizes = {columns, rows},
                         .strides = {stride},
                         .columns = box_columns,
                         .rows = box_rows,
                         .swizzle = 2 * box_columns};
  };
  // Of the result's type: numbers of fp32 are two columns of 16 bits each.
  const LinearProblem& p = problem_;
  const std::int64_t units = element_bytes(p.out) / 2;
  const auto panels = [&](LinearTensor tensor, std::size_t at, std::int64_t stride,
                          std::int64_t box_rows) {
    return matrix(tensor, at, p.n * units, p.m, stride * units, store_columns() * units, box_rows);
  };
  const std::int64_t w_rows = (p.transposed ? kBlockK : block_n) / (pair == 2 ? 2 : 1);
  std::vector<TensorMapSlot> slots = {matrix(kLinearX, offsetof(LinearTensorMaps, x), p.k, p.m,
                                             p.x_row, kBlockK, block_m / (pair == 1 ? 2 : 1)),
                                      matrix(kLinearW, offsetof(LinearTensorMaps, w), p.w_columns(),
                                             p.w_rows(), p.w_row, kBlockK, w_rows)};
  if (p.out_period == 0) {
    slots.push_back(panels(kLinearOut, offsetof(LinearTensorMaps, out), p.out_row, 16));
  }
  if (copies_residual()) {
    slots.push_back(
        panels(p.has_pre() ? kLinearPre : kLinearResidual, offsetof(LinearTensorMaps, residual),
               p.has_pre() ? p.pre_row : p.residual_row, stages_residual() ? 16 : block_m));
  }
  if (p.aux || p.post) {
    slots.push_back(matrix(p.aux ? kLinearAux : kLinearPost, sizeof(LinearTensorMaps), p.n, p.m,
                           p.aux ? p.aux_row : p.post_row, store_columns(), 16));
  }
  return slots;
}

std::int64_t LinearSm90Shape::map_bytes() const {
  return problem_.aux || problem_.post ? sizeof(LinearTwoResultMaps) : sizeof(LinearTensorMaps);
}

std::string_view linear_sm90_maps_type(const LinearProblem& p) {
  return p.aux || p.post ? "LinearTwoResultMaps" : "LinearTensorMaps";
}

std::string linear_sm90_facts_text(const LinearProblem& p) {
  std::string text = linear_facts_text(p) + linear_flag("kRowMap", p.out_period > 0) +
                     linear_number("kMomentsWritten", p.moments) +
                     linear_number("kMomentsGiven", p.given_moments);
  if (p.norm != LinearNorm::kMoments) return text;
  return text + linear_number("kMostGiven", p.k / p.given_moments) +
         formatted("  static constexpr float kEps = {:.9g}f;\n", static_cast<float>(p.eps));
}

const LinearFamily& linear_sm90() {
  static const LinearSm90 instance;
  return instance;
}

}  // namespace vitune
