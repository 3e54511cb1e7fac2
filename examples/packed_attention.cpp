// examples/packed_attention.cpp -- Images of differing sizes in one launch: packed attention by its
// text, and a second batch of other lengths by the same problem.
//
// Prints which kernel served; compares one value of each batch with the CPU's. Ends with 77 without
// a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "gpu.h"
#include "reference.h"
#include "vitune/vitune.hpp"

namespace {

constexpr std::size_t kTokens = 48, kHeads = 2, kDim = 64, kSequences = 4;
constexpr std::size_t kElements = kTokens * kHeads * kDim;
constexpr int kNoGpu = 77;

using Elements = std::vector<std::uint16_t>;
using Offsets = std::vector<std::int32_t>;  // where each sequence begins, and the last one's end

std::size_t place(std::size_t token, std::size_t head) { return (token * kHeads + head) * kDim; }

// The result of one query of a sequence, in one column: q, k and v are [tokens, heads, d].
double attention_value(const Elements& q, const Elements& k, const Elements& v,
                       const Offsets& offsets, std::size_t sequence, std::size_t token,
                       std::size_t head, std::size_t column) {
  double sum = 0, result = 0;
  for (auto key = std::size_t(offsets[sequence]); key < std::size_t(offsets[sequence + 1]); ++key) {
    double score = 0;
    for (std::size_t c = 0; c < kDim; ++c) {
      score += float_of(q[place(token, head) + c]) * float_of(k[place(key, head) + c]);
    }
    const double weight = std::exp(score / std::sqrt(double(kDim)));
    sum += weight;
    result += weight * float_of(v[place(key, head) + column]);
  }
  return result / sum;
}

int run() {
  vitune::Context context;
  Elements q(kElements), k(kElements), v(kElements), out(kElements);
  fill_bf16(q.data(), q.size());
  fill_bf16(k.data(), k.size());
  fill_bf16(v.data(), v.size());
  std::rotate(k.begin(), k.begin() + 7, k.end());
  gpu_open();
  void* gpu_q = gpu_upload(q.data(), 2 * kElements);
  void* gpu_k = gpu_upload(k.data(), 2 * kElements);
  void* gpu_v = gpu_upload(v.data(), 2 * kElements);
  void* gpu_out = gpu_upload(out.data(), 2 * kElements);

  // The most that a batch has: it chooses the kernel. Lengths are on the GPU alone.
  const vitune::Problem packed("packed_attention bf16 tokens=48 longest=40 sequences=4 h=2 d=64");
  // Spare sequences are empty: their offsets repeat the last one.
  const std::vector<Offsets> batches = {{0, 5, 5, 45, 48}, {0, 16, 32, 32, 32}};
  bool right = true;
  for (const Offsets& offsets : batches) {
    void* gpu_offsets = gpu_upload(offsets.data(), sizeof(offsets[0]) * offsets.size());
    context.run(packed, packed.addresses({{"q", gpu_q},
                                          {"k", gpu_k},
                                          {"v", gpu_v},
                                          {"cu_seqlens_q", gpu_offsets},
                                          {"out", gpu_out}}));
    gpu_download(out.data(), gpu_out, 2 * kElements);
    constexpr std::size_t kToken = 4, kHead = 1, kColumn = 33;
    const double got = float_of(out[place(kToken, kHead) + kColumn]);
    const double wanted = attention_value(q, k, v, offsets, 0, kToken, kHead, kColumn);
    std::printf("GPU %.6f, CPU %.6f\n", got, wanted);
    // Weights and the output are rounded to bf16, by 2^-9 each, of values of at most 1.
    right = right && std::abs(got - wanted) <= 1.0 / 128;
  }
  const vitune::KernelSelection selection = context.query(packed);
  std::printf("kernel: %s\nwhy:    %s\n", selection.config.c_str(), selection.reason.c_str());
  return right ? 0 : 1;
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
