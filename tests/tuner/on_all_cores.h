// tests/tuner/on_all_cores.h -- Work that is cut in numbered parts, by as many threads as there are
// cores. NVRTC is thread safe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace vitune::testing_support {

// work(i) for each i below `parts`; none may throw.
template <class Work>
void on_all_cores(std::size_t parts, Work&& work) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < parts; at = next++) work(at);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace vitune::testing_support
