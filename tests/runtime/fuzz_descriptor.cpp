// tests/runtime/fuzz_descriptor.cpp -- vitune_fuzz_descriptor RUNS [SEED]: long runs of the fuzzer.
//
// Prints what it saw; exit status 1 with the first finding. Meant for a sanitizer build: the test
// program makes a short run of the same.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/db/test_support.h"
#include "tests/runtime/descriptor_fuzzer.h"
#include "tests/runtime/mock_libcuda.h"

namespace {

using vitune::test::DescriptorCheck;
using vitune::test::FuzzReport;
using vitune::test::MockCuda;

constexpr std::uint64_t kRunsPerContext = 200000;

void drop(void*, int32_t, const char*) {}

// A context on the mock driver without any compiler, and with a database that is not there.
vitune_context* make_context(const char* database) {
  vitune_context_options options = VITUNE_CONTEXT_OPTIONS_INIT;
  options.database = database;
  options.shipped_database = "";
  options.read_only = 1;
  options.no_compile = 1;
  options.log = drop;
  vitune_context* context = nullptr;
  if (vitune_context_create(&options, &context) != VITUNE_OK) {
    std::fprintf(stderr, "no context: %s\n", vitune_last_error());
  }
  return context;
}

}  // namespace

int main(int count, char** arguments) {
  const std::uint64_t runs = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1000000;
  const std::uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
  if (count < 2 || count > 3 || runs == 0) {
    std::fprintf(stderr, "usage: vitune_fuzz_descriptor RUNS [SEED]\n");
    return 2;
  }
  MockCuda* const mock = vitune::test::open_mock_cuda(VITUNE_MOCK_LIBCUDA);
  if (mock != nullptr) mock->set_recording(false);
  const vitune::test::TempDir directory;
  const std::string database = (directory / "vitune.db").string();
  DescriptorCheck check(seed);
  FuzzReport report;
  while (report.runs < runs && !report.finding) {
    // A new one now and then, since a context remembers every problem it was asked for.
    vitune_context* const context = mock != nullptr ? make_context(database.c_str()) : nullptr;
    check.run(std::min(kRunsPerContext, runs - report.runs), context, 64, report);
    if (context != nullptr) vitune_context_destroy(context);
  }
  std::printf("%llu runs with seed %llu: %llu accepted, %llu prepared, %llu launched\n",
              static_cast<unsigned long long>(report.runs), static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(report.accepted),
              static_cast<unsigned long long>(report.prepared),
              static_cast<unsigned long long>(report.launched));
  if (!report.finding) return 0;
  std::fprintf(stderr, "FINDING, %s\n", report.finding->c_str());
  return 1;
}
