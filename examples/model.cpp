// examples/model.cpp -- A whole model without Python: a file of vitune.export() and one pass over
// it.
//
//   ./model vit_b.safetensors [batch]
//
// Prints the model's tensors and the largest number of each result. Ends with 77 without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gpu.h"
#include "reference.h"
#include "vitune/vitune.hpp"

namespace {

constexpr int kNoGpu = 77;

int run(const char* path, std::int64_t batch) {
  vitune::Context context;
  vitune::Model model(context, path);
  std::printf("source: %s\n", model.text("source").c_str());
  const std::vector<vitune::TensorInfo> tensors = model.tensors(batch);
  for (const vitune::TensorInfo& tensor : tensors) {
    std::printf("%s: %s, %lld bytes\n", tensor.output ? "result" : "input", tensor.name.c_str(),
                static_cast<long long>(tensor.bytes));
  }
  if (tensors.size() != 2 || tensors[0].type != vitune::DataType::kBf16 ||
      tensors[1].type != vitune::DataType::kBf16) {
    std::printf("this example is for models of one input and one result of bf16\n");
    return 1;
  }

  vitune::Session session = model.session(batch);
  std::vector<std::uint16_t> images(std::size_t(tensors[0].bytes) / 2);
  std::vector<std::uint16_t> logits(std::size_t(tensors[1].bytes) / 2);
  fill_bf16(images.data(), images.size());
  gpu_open();
  void* gpu_images = gpu_upload(images.data(), 2 * images.size());
  void* gpu_logits = gpu_upload(logits.data(), 2 * logits.size());
  session.run({gpu_images}, {gpu_logits});
  gpu_download(logits.data(), gpu_logits, 2 * logits.size());

  const std::size_t row = logits.size() / std::size_t(batch);
  for (std::size_t i = 0; i < std::size_t(batch); ++i) {
    std::size_t best = 0;
    for (std::size_t k = 1; k < row; ++k) {
      if (float_of(logits[i * row + k]) > float_of(logits[i * row + best])) best = k;
    }
    std::printf("image %zu: %zu with %.3f\n", i, best, double(float_of(logits[i * row + best])));
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s FILE [BATCH]\n", arguments[0]);
    return 2;
  }
  try {
    return run(arguments[1], count > 2 ? std::atoi(arguments[2]) : 1);
  } catch (const vitune::Exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.status() == VITUNE_NO_DEVICE ? kNoGpu : 1;
  }
}
