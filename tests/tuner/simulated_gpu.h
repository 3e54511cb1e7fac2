// tests/tuner/simulated_gpu.h -- An invented GPU that runs attention kernels, for tests without
// one.
//
// Not a recording and not the cost model: CTAs go through phases (load, Q K^T, softmax, P V, store)
// and share the units of an SM while they are in the same one, event by event. Its constants are
// others than the model's, and a time carries 1 % of noise, so that a choice that is good here was
// not found by asking the same formula twice.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/checked.h"
#include "core/device_info.h"
#include "generator/attention/even_items.h"
#include "generator/attention/facts.h"
#include "generator/attention/problem.h"
#include "tests/tuner/synthetic_space.h"

namespace vitune::testing {

class SimulatedGpu {
 public:
  SimulatedGpu(DeviceInfo device, std::uint64_t seed) : device_(std::move(device)), seed_(seed) {}

  int registers(const AttentionProblem& problem, const Config& config) const {
    const AttentionShape shape(problem, config);
    const double wanted = 1.5 * static_cast<double>(shape.live_registers()) + 26;
    return static_cast<int>(std::clamp(wanted, 32.0, cap(shape))) / 8 * 8;
  }

  // Microseconds of a cold call with noise, which depends on nothing but problem and config; 0 if
  // the kernel does not fit.
  double cold_us(const AttentionProblem& problem, const Config& config) const {
    const AttentionShape shape(problem, config);
    const int held = resident_ctas(device_, static_cast<int>(shape.threads()),
                                   registers(problem, config), shape.shared_bytes());
    if (held == 0) return 0;
    const std::int64_t items =
        ceil_div(shape.items(problem.batch * problem.heads), device_.sm_count);
    const double clocks = shape.producer ? run_pipelined(problem, shape, items, held)
                                         : run_sm(phases(problem, shape), items, held);
    const double compute = clocks / 1700;
    const double memory = problem.min_bytes() / 3.7e6;
    const double us = 2.7 + std::max(compute, memory) + 0.35 * std::min(compute, memory);
    const std::hash<std::string> hash;
    const double first = std::max(noise(seed_, hash(problem.text()), hash(config.text()), 1), 1e-9);
    const double second = noise(seed_, hash(problem.text()), hash(config.text()), 2);
    const double normal = std::sqrt(-2 * std::log(first)) * std::cos(6.283185307179586 * second);
    return us * std::exp(0.01 * normal);
  }

 private:
  enum Unit : std::size_t { kWait, kTensor, kVector, kPort, kUnits };
  struct Phase {
    Unit unit;
    double work;     // units of work, or clocks for kWait
    double fastest;  // work per clock that one CTA can reach alone
  };

  double cap(const AttentionShape& shape) const {
    const double held = static_cast<double>(round_up(shape.threads(), 128) * shape.min_ctas);
    return std::clamp(static_cast<double>(device_.registers_per_sm) / held, 32.0, 255.0);
  }

  std::vector<Phase> phases(const AttentionProblem& problem, const AttentionShape& shape) const {
    const double d = static_cast<double>(problem.d);
    const double rows = static_cast<double>(shape.warp_rows());
    const std::int64_t tiles = ceil_div(problem.nq, shape.warp_rows());
    const std::int64_t together =
        shape.row_warps() *
        (shape.resident ? shape.row_split : ceil_div(problem.nq, shape.block_m()));
    const std::int64_t passes = shape.resident ? ceil_div(tiles, together) : 1;
    const double busy = std::max(
        1.0, std::min(static_cast<double>(shape.warps),
                      static_cast<double>(tiles * shape.heads_per_cta * shape.key_split) /
                          static_cast<double>(
                              passes * (shape.resident ? shape.row_split
                                                       : ceil_div(problem.nq, shape.block_m())))));
    const double missing =
        std::max(0.0, 1.4 * static_cast<double>(shape.live_registers()) + 18 - cap(shape));
    const double slow = 1 + 0.012 * missing;
    const double bias = problem.bias ? 2.1 : 0.0;
    const double copies = static_cast<double>(shape.resident ? shape.heads_per_cta : 1);
    std::vector<Phase> list;
    list.push_back({kWait, 850, 1});
    if (shape.resident) {
      list.push_back({kPort, copies * 4 * d * static_cast<double>(problem.nk), 21});
    }
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      for (std::int64_t step = 0; step < shape.rounds(); ++step) {
        const bool last = step + 1 == shape.steps();
        const std::int64_t left = problem.nk - step * shape.block_n;
        double keys =
            static_cast<double>(last && shape.constant_keys ? round_up(left, 8) : shape.block_n);
        if (problem.causal) keys *= 0.5 + 0.5 / static_cast<double>(shape.steps());
        if (!shape.resident) {
          list.push_back({kWait, shape.stages == 1 ? 420.0 : shape.stages == 2 ? 130.0 : 95.0, 1});
          const double loaded = keys * static_cast<double>(shape.key_split);
          list.push_back({kPort, 4 * d * loaded, shape.stages == 1 ? 14.0 : 30.0});
        }
        const double products = busy * rows * keys * d * slow;
        const double reread = shape.query_in_registers ? 1 : 1.12;
        const double warp_rate = shape.row_tiles == 2 ? 120 : 88;
        list.push_back({kTensor, products * reread, warp_rate * busy});
        list.push_back({kVector, busy * rows * (keys * (1 + bias) + 0.3 * d) * slow, 2.6 * busy});
        list.push_back({kTensor, products, warp_rate * busy});
      }
      list.push_back({kPort, busy * rows * d * 4, 18});
    }
    return list;
  }

  // Beside copying warps each warpgroup goes through phases of its own, block of rows by block, and
  // tiles are there when they are wanted but for the first of each CTA. Spare rows take a share of
  // the tensor cores of one block.
  double run_pipelined(const AttentionProblem& problem, const AttentionShape& shape,
                       std::int64_t items, int held) const {
    const double d = static_cast<double>(problem.d);
    const std::int64_t groups = shape.warps / 4;
    const std::int64_t blocks = ceil_div(shape.block_rows(), 64);
    const std::int64_t per_item = shape.resident ? blocks : std::min(blocks, groups);
    const double missing =
        std::max(0.0, static_cast<double>(shape.live_registers()) + 22 -
                          static_cast<double>(shape.register_limit(device_.registers_per_sm)));
    const double slow = 1 + 0.012 * missing;
    const double bias = problem.bias ? 2.1 : 0.0;
    double keys = static_cast<double>(round_up(problem.nk, 8));
    if (problem.causal) keys *= 0.5 + 0.5 / static_cast<double>(shape.steps());
    const double products = 64 * keys * d * slow / static_cast<double>(shape.steps());
    const double scores = 64 * (keys / static_cast<double>(shape.steps()) * (1 + bias) + 0.3 * d);
    std::vector<Phase> list;
    for (std::int64_t step = 0; step < shape.steps(); ++step) {
      list.push_back({kTensor, products * (shape.spare_rows ? 1.1 : 1), 352});
      list.push_back({kVector, scores * slow, 10.4});
      list.push_back({kTensor, products, 352});
      list.push_back({kWait, 90, 1});
    }
    list.push_back({kPort, 64 * d * 4, 18});
    const double first = 850 + 4 * d * keys / 30 / static_cast<double>(shape.stages);
    std::int64_t blocks_of_sm = items * per_item;
    if (shape.even_items) {
      const EvenItems even =
          EvenItems::best(shape, problem.batch * problem.heads, device_.sm_count);
      blocks_of_sm = std::lround(even.rounds * static_cast<double>(per_item));
    }
    return first + run_sm(list, blocks_of_sm, static_cast<int>(held * groups));
  }

  // Clocks until `count` CTAs have passed, at most `held` at once.
  static double run_sm(const std::vector<Phase>& phases, std::int64_t count, int held) {
    constexpr std::array<double, kUnits> kCapacity = {1e30, 1010, 13.2, 37};
    struct Running {
      std::size_t phase;
      double left;
    };
    std::vector<Running> running;
    double now = 0;
    while (count > 0 || !running.empty()) {
      while (count > 0 && running.size() < static_cast<std::size_t>(held)) {
        running.push_back({0, phases[0].work});
        --count;
      }
      std::array<double, kUnits> users{};
      for (const Running& cta : running) users[phases[cta.phase].unit] += 1;
      const auto rate = [&](const Running& cta) {
        const Phase& phase = phases[cta.phase];
        return std::min(phase.fastest, kCapacity[phase.unit] / users[phase.unit]);
      };
      double step = 1e30;
      for (const Running& cta : running) step = std::min(step, cta.left / rate(cta));
      std::vector<double> rates;
      for (const Running& cta : running) rates.push_back(rate(cta));
      now += step;
      for (std::size_t i = 0; i < running.size(); ++i) {
        running[i].left -= step * rates[i];
        if (running[i].left > 1e-6 * phases[running[i].phase].work) continue;
        if (++running[i].phase < phases.size()) running[i].left = phases[running[i].phase].work;
      }
      std::erase_if(running, [&](const Running& cta) { return cta.phase >= phases.size(); });
    }
    return now;
  }

  DeviceInfo device_;
  std::uint64_t seed_;
};

}  // namespace vitune::testing
