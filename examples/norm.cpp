// examples/norm.cpp -- A problem of any operator by its text: LayerNorm of a transformer's tokens.
//
// Prints a call's tensors and which kernel served; compares one value with the CPU's. Ends with 77
// without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "gpu.h"
#include "reference.h"
#include "vitune/vitune.hpp"

namespace {

constexpr std::size_t kRows = 2 * 197, kColumns = 768;
constexpr int kNoGpu = 77;

// LayerNorm with eps 1e-5 of one row, at one column.
double layer_norm_value(const std::uint16_t* x, const std::uint16_t* weight, std::size_t column) {
  double mean = 0, variance = 0;
  for (std::size_t c = 0; c < kColumns; ++c) mean += float_of(x[c]) / kColumns;
  for (std::size_t c = 0; c < kColumns; ++c) {
    variance += std::pow(float_of(x[c]) - mean, 2) / kColumns;
  }
  return (float_of(x[column]) - mean) / std::sqrt(variance + 1e-5) * float_of(weight[column]);
}

int run() {
  vitune::Context context;
  std::vector<std::uint16_t> x(kRows * kColumns), weight(kColumns), out(kRows * kColumns);
  fill_bf16(x.data(), x.size());
  fill_bf16(weight.data(), weight.size());
  gpu_open();
  void* gpu_x = gpu_upload(x.data(), 2 * x.size());
  void* gpu_weight = gpu_upload(weight.data(), 2 * weight.size());
  void* gpu_out = gpu_upload(out.data(), 2 * out.size());

  // Both are made once; each call after the first only launches.
  const vitune::Problem norm("norm bf16 m=394 d=768 weight eps=1e-5");
  const auto tensors =
      norm.addresses({{"x", vitune::DeviceInput(gpu_x, std::int64_t(2 * x.size()))},
                      {"weight", gpu_weight},
                      {"out", gpu_out}});
  const auto scratch = static_cast<std::int64_t>(context.workspace_bytes(norm));
  void* workspace =
      scratch > 0 ? gpu_upload(std::vector<char>(std::size_t(scratch)).data(), std::size_t(scratch))
                  : nullptr;
  context.run(norm, tensors, {workspace, scratch});
  gpu_download(out.data(), gpu_out, 2 * out.size());

  for (const vitune::TensorInfo& tensor : norm.tensors()) {
    if (!tensor.given) continue;
    std::printf("tensor: %s, %lld bytes%s\n", tensor.name.c_str(),
                static_cast<long long>(tensor.bytes), tensor.output ? ", written" : "");
  }
  const vitune::KernelSelection selection = context.query(norm);
  std::printf("kernel: %s\nwhy:    %s\n", selection.config.c_str(), selection.reason.c_str());

  constexpr std::size_t kRow = 100, kColumn = 34;
  const double got = float_of(out[kRow * kColumns + kColumn]);
  const double wanted = layer_norm_value(&x[kRow * kColumns], weight.data(), kColumn);
  std::printf("GPU %.6f, CPU %.6f\n", got, wanted);
  // The output is rounded to bf16: by 2^-9 of its value at most.
  return std::abs(got - wanted) <= 0.002 * std::abs(wanted) + 1e-5 ? 0 : 1;
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
