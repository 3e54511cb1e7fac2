// tests/package/consumer_cpp17.cpp -- vitune.hpp in a program of C++17. Status 0 if all holds.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>
#include <vitune/vitune.hpp>

static_assert(__cplusplus < 202002L, "this is about C++17");
static_assert(std::is_convertible_v<unsigned long long, vitune::DeviceInput>);
static_assert(!std::is_convertible_v<const void*, vitune::DeviceOutput>);
static_assert(!std::is_convertible_v<int, vitune::DeviceInput>);
static_assert(!std::is_convertible_v<std::vector<double>, vitune::StrideView>);

namespace {

int fail(const std::string& what) {
  std::fprintf(stderr, "consumer_cpp17.cpp: %s\n", what.c_str());
  return 1;
}

}  // namespace

int main() {
  vitune::AttentionSizes sizes;
  sizes.batch = 4, sizes.heads = 6, sizes.nq = 49, sizes.d = 32;
  const std::vector<std::int64_t> view{49 * 192, 32, 192, 1};
  const std::int64_t of_bias[] = {0, 2401, 49, 1};
  vitune::Attention attention(sizes);
  attention.q_strides(view).bias(vitune::DataType::kFp32, of_bias, 1);
  attention.mask(std::array<std::int64_t, 4>{2401, 0, 49, 1}, 2);
  if (attention.desc().bias_strides[1] != 2401) return fail("the bias has other strides");
  if (vitune::Attention::parse(attention.text()).text() != attention.text()) {
    return fail(attention.text());
  }

  const vitune::Problem norm("norm bf16 m=5 d=64");
  const auto addresses = norm.addresses({{"x", 0x7f0000000000ull}, {"out", 0x7f0000001000ull}});
  if (addresses.size() != norm.tensors().size()) return fail("a call has other tensors");

  try {
    vitune::Context context;
    vitune::AttentionTensors tensors;
    tensors.q = 0x7f0000000000ull;
    if (context.try_run(norm, std::vector<void*>()) == VITUNE_OK) return fail("x is missing");
    if (context.try_forward(attention, tensors) == VITUNE_OK) return fail("k is missing");
  } catch (const vitune::Exception& error) {
    if (error.status() != VITUNE_NO_DEVICE) return fail(error.what());
  }
  return 0;
}
