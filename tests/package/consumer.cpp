// tests/package/consumer.cpp -- What a C++ program does with an installed libvitune. Status 0 if
// all holds.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <vitune/vitune.hpp>

namespace {

int fail(const std::string& what) {
  std::fprintf(stderr, "consumer.cpp: %s\n", what.c_str());
  return 1;
}

}  // namespace

int main() {
  const auto attention = vitune::Attention({.batch = 2, .heads = 12, .nq = 197, .d = 64}).packed();
  if (attention.text().find("nq=197") == std::string::npos) return fail(attention.text());
  try {
    vitune::Attention::parse("bf16 b=1 h=1 n=197 d=129");
    return fail("a head size of 129 was taken");
  } catch (const vitune::Exception& error) {
    if (error.status() != VITUNE_UNSUPPORTED) return fail(error.what());
  }
  try {
    vitune::Context context;
    context.close();
    std::puts("a context came and went");
  } catch (const vitune::Exception& error) {
    if (error.status() != VITUNE_NO_DEVICE) return fail(error.what());
    if (std::string(error.what()).find("VITUNE_NO_DEVICE: ") != 0) return fail(error.what());
    std::puts(error.what());
  }
  return 0;
}
