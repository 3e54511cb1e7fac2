// cli/start.cpp -- The vitune command of a package whose libvitune holds its code: starts it.
//
// The library lies beside the program and is opened by that path, so that neither remembers a
// folder, and no other libvitune of the machine's is taken.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  char self[PATH_MAX] = {};
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  std::string path(self, length > 0 ? static_cast<std::size_t>(length) : 0);
  path = path.substr(0, path.rfind('/') + 1) + "libvitune.so.0";
  void* const library = dlopen(path.c_str(), RTLD_NOW);
  const auto command =
      library == nullptr ? nullptr
                         : reinterpret_cast<int (*)(int, char**)>(dlsym(library, "vitune_command"));
  if (command == nullptr) {
    std::fprintf(stderr,
                 "vitune: error: this program needs the libvitune.so.0 of its package: %s\n",
                 dlerror());
    return 1;
  }
  return command(argc, argv);
}
