// tests/model/small_model.cpp -- Writes the small model file of the tests: small_model FILE.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <fstream>

#include "tests/model/model_files.h"

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", arguments[0]);
    return 2;
  }
  std::ofstream file(arguments[1], std::ios::binary | std::ios::trunc);
  file << vitune::test::small_file();
  return file.flush() ? 0 : 1;
}
