// generator/group_norm/tiling.cpp -- How a config cuts a group norm into tiles.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/checked.h"
#include "generator/group_norm/kernel_spec.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostAccess = 16;

// True if accesses of `vector` elements divide the tile's rows, are aligned and, of channels that
// lie one after the other, have whole ones or a part of one.
bool fits(const GroupNormProblem& p, std::int64_t run, std::int64_t vector) {
  const bool has_parameters = p.weight || p.bias;
  const std::int64_t access = vector * element_bytes(p.type);
  if (run % vector != 0 || p.alignment % std::min(kMostAccess, access) != 0) return false;
  if (!has_parameters) return true;
  const bool whole = p.positions % vector == 0 || vector % p.positions == 0;
  if (!p.nhwc && !whole) return false;
  const std::int64_t channels = p.nhwc ? vector : std::max<std::int64_t>(vector / p.positions, 1);
  const std::int64_t parameters = channels * element_bytes(p.parameters);
  return p.alignment % std::min(kMostAccess, parameters) == 0;
}

// The widest access; `run`: elements of the tile that lie side by side.
std::int64_t widest_vector(const GroupNormProblem& p, std::int64_t run) {
  std::int64_t vector = p.type == ElementType::kFp32 ? 4 : 8;
  while (vector > 1 && !fits(p, run, vector)) vector /= 2;
  return vector;
}

// As few vectors in registers as shared memory, of devices that have clusters, leaves.
void hold_what_lacks_room(GroupNormTiling& t) {
  while (t.held < t.steps && t.grid_bytes() > kCtaShared)
    t.held += std::max<std::int64_t>(t.pieces, 1);
}

}  // namespace

GroupNormTiling group_norm_tiling(const GroupNormProblem& p, const Config& config) {
  GroupNormTiling t;
  t.threads = config.at("kThreads");
  t.groups = config.at("kGroups");
  t.chunks = config.at("kChunks");
  t.sliced = p.nhwc && t.groups > 1;
  const std::int64_t channels = p.group_channels();
  const std::int64_t run = p.nhwc ? t.groups * channels : channels * p.positions;
  t.vector = widest_vector(p, run);
  t.vector_channels = p.nhwc ? t.vector : std::max<std::int64_t>(t.vector / p.positions, 1);
  t.rows = p.nhwc ? p.positions : run / t.vector;
  t.row_vectors = p.nhwc ? run / t.vector : 1;
  t.row_stride = p.nhwc ? p.channels : t.vector;
  t.chunk_rows = ceil_div(t.rows, t.chunks);
  t.tile_threads = t.sliced ? t.threads : std::max<std::int64_t>(t.threads / t.groups, 1);
  t.busy = t.sliced ? std::max<std::int64_t>(t.threads / t.row_vectors, 1) * t.row_vectors
                    : t.tile_threads;
  t.steps = ceil_div(t.chunk_vectors(), t.busy);
  t.pieces = t.chunks == 1 ? t.steps : config.at("kPieces");
  t.piece_registers = t.pieces * std::max<std::int64_t>(t.vector * element_bytes(p.type) / 4, 1);
  t.slots = t.sliced && channels % t.vector != 0 ? t.vector : 1;
  t.column_registers = (p.nhwc ? 2 * t.vector : 0) + (t.slots > 1 ? 2 * t.vector : 0);
  // Elements of neighbouring channels fall into different banks.
  t.slot_stride = round_up(t.busy, kWarp) + 4;
  t.cluster = config.find("kCluster").value_or(0) != 0;
  // kEven in templates/group_norm/tile.cuh.
  t.even = (p.nhwc || t.groups == 1) && t.busy == t.tile_threads &&
           t.rows == t.chunks * t.chunk_rows && t.steps * t.busy == t.chunk_vectors();
  t.vector_bytes = t.vector * element_bytes(p.type);
  t.waves = config.find("kTurns").value_or(1);
  if (t.grid()) hold_what_lacks_room(t);
  return t;
}

std::int64_t GroupNormTiling::moment_bytes() const {
  if (sliced) return 8 * slots * slot_stride;
  return tile_threads > kWarp ? 12 * (threads / kWarp) : 0;
}

std::int64_t GroupNormTiling::cluster_bytes() const {
  constexpr std::int64_t kBarrier = 8, kWords = 8;  // of each CTA
  return steps * threads * vector_bytes + kWords * chunks + kBarrier + moment_bytes();
}

std::int64_t GroupNormTiling::grid_bytes() const {
  const std::int64_t parts = 8 * groups * (threads / kWarp);
  return (2 * steps - held) * threads * vector_bytes + 2 * (parts + scale_bytes());
}

std::int64_t group_norm_tiles(const GroupNormProblem& p, std::int64_t groups) {
  return p.nhwc ? p.images * (p.groups / groups) : ceil_div(p.images * p.groups, groups);
}

double group_norm_steps(const GroupNormProblem& p, const GroupNormTiling& t,
                        const DeviceInfo& device, double sm_threads, double together) {
  constexpr int kManySms = 132;  // where the architecture alone is known
  const double sms = device.sm_count > 0 ? device.sm_count : kManySms;
  const double ctas = static_cast<double>(group_norm_tiles(p, t.groups) * t.chunks);
  const double threads = std::min(ctas * static_cast<double>(t.threads), sm_threads * sms);
  const double vectors = static_cast<double>(p.elements()) / static_cast<double>(t.vector);
  return vectors / threads + static_cast<double>(t.threads) / together;
}

}  // namespace vitune
