// tests/runtime/close_library.cpp -- A program that closes libvitune beside a context that lives:
// vitune_close_library.
//
//   vitune_close_library LIBRARY MOCK DATABASE
//
// Loads the library, makes a context that refreshes by itself, closes the library, and writes a
// file that is no database. Prints the warning of the refresh that meets it; exit status 1 without
// one.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/patience.h"
#include "vitune/vitune.h"

namespace {

std::atomic<bool> was_warned{false};

void receive(void*, int32_t level, const char* message) {
  if (level < VITUNE_LOG_WARNING) return;
  std::printf("%s\n", message);
  was_warned = true;
}

// The context is never destroyed.
bool make_context(void* library, const char* database) {
  auto* const create =
      reinterpret_cast<decltype(&vitune_context_create)>(dlsym(library, "vitune_context_create"));
  vitune_context_options options = VITUNE_CONTEXT_OPTIONS_INIT;
  options.database = database;
  options.shipped_database = "";
  options.read_only = 1;
  options.no_compile = 1;
  options.refresh_seconds = 1;
  options.log = receive;
  vitune_context* context = nullptr;
  return create != nullptr && create(&options, &context) == VITUNE_OK;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 || dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) == nullptr) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr || !make_context(library, argv[3]) || was_warned) return 2;
  if (dlclose(library) != 0) return 2;
  std::ofstream(argv[3]) << "no database";
  const bool goes_on = vitune::test::soon([] { return was_warned.load(); });
  std::fflush(stdout);
  std::_Exit(goes_on ? 0 : 1);
}
