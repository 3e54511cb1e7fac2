// examples/attention.cpp -- One call from C++: attention over the packed q, k, v of a vision
// transformer.
//
// Prints which kernel served and compares one value with the CPU's. Ends with 77 without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "gpu.h"
#include "reference.h"
#include "vitune/vitune.hpp"

namespace {

constexpr std::int64_t kBatch = 2, kHeads = 12, kTokens = 197, kHeadSize = 64;
constexpr int kNoGpu = 77;

int run() {
  vitune::Context context;

  // The output of a transformer block's projection: [batch, tokens, 3, heads, head size].
  std::vector<std::uint16_t> qkv(kBatch * kTokens * 3 * kHeads * kHeadSize);
  std::vector<std::uint16_t> out(kBatch * kTokens * kHeads * kHeadSize);
  fill_bf16(qkv.data(), qkv.size());
  gpu_open();
  auto* gpu_qkv = static_cast<std::uint16_t*>(gpu_upload(qkv.data(), 2 * qkv.size()));
  void* gpu_out = gpu_upload(out.data(), 2 * out.size());

  // q, k and v are views of it; the output is written so that the next layer needs no copy.
  const auto attention =
      vitune::Attention({.batch = kBatch, .heads = kHeads, .nq = kTokens, .d = kHeadSize}).packed();
  constexpr std::int64_t kSlice = kHeads * kHeadSize;
  context.forward(attention, {.q = gpu_qkv,
                              .k = gpu_qkv + kSlice,
                              .v = gpu_qkv + 2 * kSlice,
                              .out = {gpu_out, std::int64_t(2 * out.size())}});
  gpu_download(out.data(), gpu_out, 2 * out.size());

  const vitune::KernelSelection selection = context.query(attention);
  std::printf("kernel: %s\nwhy:    %s\n", selection.config.c_str(), selection.reason.c_str());

  constexpr std::int64_t kEntry = 1, kRow = 100, kHead = 7, kColumn = 34;
  const double got =
      float_of(out[((kEntry * kTokens + kRow) * kHeads + kHead) * kHeadSize + kColumn]);
  const double wanted =
      attention_value(qkv.data(), kTokens, kHeads, kHeadSize, kEntry, kRow, kHead, kColumn);
  std::printf("GPU %.6f, CPU %.6f\n", got, wanted);
  // The weights are rounded to bf16: by 2^-9 at most of values up to 1. The output by far less.
  return std::abs(got - wanted) <= 0.002 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const vitune::Exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.status() == VITUNE_NO_DEVICE ? kNoGpu : 1;
  }
}
