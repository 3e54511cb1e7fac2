// core/input_file.cpp -- Looks at what is there before and after it is opened.
// SPDX-License-Identifier: Apache-2.0
#include "core/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/unique_fd.h"

namespace vitune {
namespace {

InputFile unreadable(int error) {
  InputFile file;
  const bool missing = error == ENOENT || error == ENOTDIR;
  file.fault = missing ? InputFault::kMissing : InputFault::kUnreadable;
  file.error = {error, std::generic_category()};
  return file;
}

InputFile faulty(InputFault fault) {
  InputFile file;
  file.fault = fault;
  return file;
}

// Up to `size` bytes: 0, or errno's value.
int read_all(int fd, std::size_t size, std::string& content) {
  content.resize(size);
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got = ::read(fd, content.data() + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  content.resize(have);
  return 0;
}

}  // namespace

InputFile read_input_file(const std::filesystem::path& path, std::uintmax_t most) {
  struct stat status {};
  // Opening alone does something to some devices.
  if (::stat(path.c_str(), &status) != 0) return unreadable(errno);
  if (!S_ISREG(status.st_mode)) return faulty(InputFault::kIrregular);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) return unreadable(errno);
  if (!S_ISREG(status.st_mode)) return faulty(InputFault::kIrregular);
  InputFile file;
  file.bytes = static_cast<std::uintmax_t>(status.st_size);
  if (file.bytes > most) {
    file.fault = InputFault::kTooLarge;
    return file;
  }
  const int error = read_all(fd.get(), static_cast<std::size_t>(file.bytes), file.content);
  return error == 0 ? file : unreadable(error);
}

}  // namespace vitune
