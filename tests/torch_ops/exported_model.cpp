// tests/torch_ops/exported_model.cpp -- Runs a model that AOTInductor compiled, without Python.
//
// Usage: exported_model OPERATORS.so MODEL.pt2 INPUT OUTPUT ROWS WIDTH: one image's [ROWS, WIDTH]
// in bfloat16, as bytes. Compiled and called by python/tests/test_torch_export.py.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

int main(int count, char** words) {
  if (count != 7) {
    return 2;
  }
  if (dlopen(words[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  std::ifstream file(words[3], std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const torch::InferenceMode guard;
  const auto input = torch::from_blob(bytes.data(), {1, std::stol(words[5]), std::stol(words[6])},
                                      torch::kBFloat16);
  torch::inductor::AOTIModelPackageLoader model(words[2]);
  const auto output = model.run({input}).at(0).contiguous();
  std::ofstream(words[4], std::ios::binary)
      .write(static_cast<const char*>(output.data_ptr()), static_cast<long>(output.nbytes()));
  const auto served =
      reinterpret_cast<unsigned long (*)()>(dlsym(RTLD_DEFAULT, "vitune_torch_served"));
  std::printf("%lu\n", served());
  return 0;
}
