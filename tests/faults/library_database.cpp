// tests/faults/library_database.cpp -- What vitune_use_library finds: a winner for the mock driver.
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/failed_allocations.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::faults {

void make_library_database(const std::filesystem::path& file) {
  test::promote(file, test::make_kernel(test::kVitB, 1));
}

}  // namespace vitune::faults
