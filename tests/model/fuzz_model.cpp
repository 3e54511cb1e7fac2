// tests/model/fuzz_model.cpp -- vitune_fuzz_model RUNS [SEED [FILE...]]: long runs of the fuzzer.
//
// Prints what it saw; exit status 1 with the first finding. Meant for a sanitizer build: the test
// program makes a short run of the same. FILEs are changed beside the small file of the tests.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/model/model_fuzzer.h"

int main(int count, char** arguments) {
  using namespace vitune::test;
  const std::uint64_t runs = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 0;
  const std::uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
  if (runs == 0) {
    std::fprintf(stderr, "usage: vitune_fuzz_model RUNS [SEED [FILE...]]\n");
    return 2;
  }
  std::vector<std::string> seeds = {small_file()};
  for (int i = 3; i < count; ++i) {
    std::ifstream in(arguments[i], std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  const ModelFolder folder;
  ModelFuzzer fuzzer(std::move(seeds), seed);
  ModelFuzzReport report;
  while (report.runs < runs && !report.finding) fuzzer.run(folder, report);
  std::printf("%llu runs with seed %llu: %llu accepted\n",
              static_cast<unsigned long long>(report.runs), static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(report.accepted));
  if (!report.finding) return 0;
  std::fprintf(stderr, "FINDING, %s\n", report.finding->c_str());
  return 1;
}
