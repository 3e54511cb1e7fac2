// benchmarks/lab/linear_gate_timing.h -- Times of calls on a stream; checked calls of CUDA.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace gate {

[[noreturn]] inline void fail(const char* what, const char* why, int line) {
  std::printf("FAIL line %d: %s: %s\n", line, what, why);
  std::fflush(stdout);
  std::_Exit(3);
}
inline void check(cudaError_t error, const char* what, int line) {
  if (error != cudaSuccess) fail(what, cudaGetErrorString(error), line);
}
inline void check(CUresult result, const char* what, int line) {
  const char* why = "?";
  if (result == CUDA_SUCCESS) return;
  cuGetErrorString(result, &why);
  fail(what, why, line);
}
#define GATE_CHECK(call) ::gate::check((call), #call, __LINE__)

// Median and least microseconds of a call.
struct Time {
  double median = 0, least = 0;
};

// `enqueue(i)` puts call i on the stream: a graph of 20 of them, replayed 3 + `replays` times.
template <class Enqueue>
Time time_calls(cudaStream_t stream, int replays, Enqueue&& enqueue) {
  constexpr int kCalls = 20;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  GATE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kCalls; ++i) enqueue(i);
  GATE_CHECK(cudaStreamEndCapture(stream, &graph));
  GATE_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) GATE_CHECK(cudaGraphLaunch(exec, stream));
  std::vector<cudaEvent_t> begins(replays), ends(replays);
  for (int i = 0; i < replays; ++i) {
    GATE_CHECK(cudaEventCreate(&begins[i]));
    GATE_CHECK(cudaEventCreate(&ends[i]));
    GATE_CHECK(cudaEventRecord(begins[i], stream));
    GATE_CHECK(cudaGraphLaunch(exec, stream));
    GATE_CHECK(cudaEventRecord(ends[i], stream));
  }
  GATE_CHECK(cudaStreamSynchronize(stream));
  std::vector<double> times(replays);
  for (int i = 0; i < replays; ++i) {
    float milliseconds = 0;
    GATE_CHECK(cudaEventElapsedTime(&milliseconds, begins[i], ends[i]));
    times[i] = milliseconds * 1e3 / kCalls;
    GATE_CHECK(cudaEventDestroy(begins[i]));
    GATE_CHECK(cudaEventDestroy(ends[i]));
  }
  GATE_CHECK(cudaGraphExecDestroy(exec));
  GATE_CHECK(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return {times[replays / 2], times[0]};
}

}  // namespace gate
