// tests/faults/use_library.cpp -- A program that uses libvitune with the mock driver, where memory
// may be lacking: vitune_use_library.
//
//   vitune_use_library MOCK DATABASE
//
// Makes a context, prepares, calls, asks and ends it. What fails must say why and work when it is
// tried again; exit status 1 with a line if not.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tests/runtime/mock_libcuda.h"
#include "vitune/vitune.h"

// A function of libvitune_fail_allocation.so: nothing is counted before.
extern "C" __attribute__((weak)) void vitune_count_allocations();

namespace {

// Addresses of four tensors; the mock driver computes nothing.
constexpr std::uintptr_t kApart = std::uintptr_t{1} << 32, kQ = 256 * kApart,
                         kOut = kQ + 3 * kApart;

// True if `call` succeeds, at the latest after some tries.
template <typename Call>
bool succeeds(const char* name, Call&& call) {
  vitune_status status = VITUNE_OK;
  for (int tries = 0; tries < 3; ++tries) {
    status = call();
    if (status == VITUNE_OK) return true;
    if (std::strlen(vitune_last_error()) == 0) {
      std::fprintf(stderr, "%s: %s without a sentence\n", name, vitune_status_name(status));
      return false;
    }
  }
  std::fprintf(stderr, "%s: %s: %s\n", name, vitune_status_name(status), vitune_last_error());
  return false;
}

bool use_library(const char* database) {
  vitune_context_options options = VITUNE_CONTEXT_OPTIONS_INIT;
  options.database = database;
  options.shipped_database = "";
  options.read_only = 1;
  options.no_compile = 1;
  vitune_context* context = nullptr;
  if (!succeeds("create", [&] { return vitune_context_create(&options, &context); })) return false;
  vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
  const char* problem = "bf16 b=2 h=12 n=197 d=64";
  if (!succeeds("parse", [&] { return vitune_problem_parse(problem, &desc); })) return false;
  // A database that could not be opened is opened by a refresh.
  int32_t changed = 0;
  const auto prepare = [&] {
    const vitune_status status = vitune_prepare(context, &desc);
    if (status != VITUNE_OK) vitune_context_refresh(context, &changed);
    return status;
  };
  if (!succeeds("prepare", prepare)) return false;
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<char*>(address); };
  const auto forward = [&] {
    return vitune_attention_forward(context, &desc, at(kQ), at(kQ + kApart), at(kQ + 2 * kApart),
                                    nullptr, nullptr, at(kOut), nullptr, nullptr, 0, nullptr);
  };
  if (!succeeds("forward", forward) || !succeeds("forward", forward)) return false;
  const auto refresh = [&] { return vitune_context_refresh(context, &changed); };
  if (!succeeds("refresh", refresh) || !succeeds("forward", forward)) return false;
  vitune_selection selection = VITUNE_SELECTION_INIT;
  if (!succeeds("query", [&] { return vitune_query(context, &desc, &selection); })) return false;
  if (selection.outcome != VITUNE_EXACT) {
    std::fprintf(stderr, "not served by its winner: %s\n", selection.reason);
    return false;
  }
  return succeeds("destroy", [&] { return vitune_context_destroy(context); });
}

}  // namespace

int main(int argc, char** argv) {
  auto* const mock = argc == 3 ? vitune::test::open_mock_cuda(argv[1]) : nullptr;
  if (mock == nullptr) return 2;
  mock->add_range(kQ, 4 * kApart, 0, 2);
  // The mock driver's own needs are no matter of the library's.
  mock->set_recording(false);
  if (mock->depth() != 0) return 2;
  if (vitune_count_allocations != nullptr) vitune_count_allocations();
  return use_library(argv[2]) ? 0 : 1;
}
