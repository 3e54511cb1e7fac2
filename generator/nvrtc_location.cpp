// generator/nvrtc_location.cpp -- Directories of libnvrtc and the build identity of a library file.
// SPDX-License-Identifier: Apache-2.0
#include "generator/nvrtc_location.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>

#include "core/digest.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

#if defined(__aarch64__)
constexpr const char* kToolkitTarget = "targets/sbsa-linux/lib";
#else
constexpr const char* kToolkitTarget = "targets/x86_64-linux/lib";
#endif

class Directories {
 public:
  void add(const fs::path& directory) {
    const std::string text = directory.string();
    if (std::find(list_.begin(), list_.end(), text) == list_.end()) list_.push_back(text);
  }
  void add_toolkit(const fs::path& root) {
    for (const char* part : {"lib64", "lib", kToolkitTarget}) add(root / part);
  }
  // The PyPI packages below <prefix>/lib/python3*/{site,dist}-packages.
  void add_python(const fs::path& prefix) {
    for (const fs::path& version : matching(prefix / "lib", "python3")) {
      for (const char* packages : {"site-packages", "dist-packages"}) {
        for (const char* package : {"cu13", "cuda_nvrtc", "cublas"}) {
          const fs::path directory = version / packages / "nvidia" / package / "lib";
          std::error_code error;
          if (fs::is_directory(directory, error)) add(directory);
        }
      }
    }
  }
  // Entries of `directory` whose names start with `start`, newest version first.
  static std::vector<fs::path> matching(const fs::path& directory, std::string_view start) {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator it(directory, error), end; !error && it != end;
         it.increment(error)) {
      if (it->path().filename().string().starts_with(start)) found.push_back(it->path());
    }
    std::sort(found.rbegin(), found.rend());
    return found;
  }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

void add_pythons_on_path(Directories& directories, std::string_view path) {
  while (!path.empty()) {
    const std::size_t end = std::min(path.find(':'), path.size());
    const fs::path directory(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    std::error_code error;
    if (!directory.is_absolute() || !fs::exists(directory / "python3", error)) continue;
    directories.add_python(directory.parent_path());
    // pyenv puts scripts in <root>/shims in front of the interpreters in <root>/versions/*.
    if (directory.filename() == "shims") {
      const fs::path versions = directory.parent_path() / "versions";
      for (const fs::path& prefix : Directories::matching(versions, "")) {
        directories.add_python(prefix);
      }
    }
    const fs::path real = fs::canonical(directory / "python3", error);
    if (!error) directories.add_python(real.parent_path().parent_path());
  }
}

class File {
 public:
  explicit File(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat info {};
    if (fd_ >= 0 && fstat(fd_, &info) == 0 && S_ISREG(info.st_mode)) size_ = info.st_size;
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  off_t size() const { return size_; }
  // `size` bytes from `offset`; nothing if the file does not hold them.
  std::optional<std::string> read(std::uint64_t offset, std::uint64_t size) const {
    const auto total = static_cast<std::uint64_t>(std::max<off_t>(size_, 0));
    if (size > total || offset > total - size) return std::nullopt;
    std::string bytes(size, '\0');
    const ssize_t count = pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 || static_cast<std::uint64_t>(count) != size) return std::nullopt;
    return bytes;
  }

 private:
  int fd_;
  off_t size_ = -1;
};

template <typename T>
std::optional<T> read_struct(std::string_view bytes, std::size_t offset) {
  if (sizeof(T) > bytes.size() || offset > bytes.size() - sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

// The GNU build-id among the notes of one segment, in hexadecimal.
std::optional<std::string> build_id_of(std::string_view notes) {
  std::size_t at = 0;
  while (const auto note = read_struct<Elf64_Nhdr>(notes, at)) {
    const std::size_t name_at = at + sizeof(Elf64_Nhdr);
    const std::size_t value_at = name_at + ((std::size_t{note->n_namesz} + 3) & ~std::size_t{3});
    const std::size_t end = value_at + ((std::size_t{note->n_descsz} + 3) & ~std::size_t{3});
    if (end > notes.size()) return std::nullopt;
    if (note->n_type == NT_GNU_BUILD_ID && note->n_descsz > 0 &&
        notes.substr(name_at, note->n_namesz) == std::string_view("GNU\0", 4)) {
      return hex(notes.substr(value_at, note->n_descsz));
    }
    at = end;
  }
  return std::nullopt;
}

std::optional<std::string> build_id_of(const File& file) {
  constexpr std::size_t kMaxNotes = 64 << 10;  // a real library has a few hundred bytes of them
  const auto head = file.read(0, sizeof(Elf64_Ehdr));
  if (!head || !head->starts_with(ELFMAG)) return std::nullopt;
  const Elf64_Ehdr header = *read_struct<Elf64_Ehdr>(*head, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return std::nullopt;
  }
  const auto table = file.read(header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr));
  if (!table) return std::nullopt;
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    const Elf64_Phdr segment = *read_struct<Elf64_Phdr>(*table, i * sizeof(Elf64_Phdr));
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNotes) continue;
    const auto notes = file.read(segment.p_offset, segment.p_filesz);
    if (!notes) continue;
    if (auto id = build_id_of(*notes)) return id;
  }
  return std::nullopt;
}

}  // namespace

std::span<const std::string_view> nvrtc_file_names() {
  // 11.2 is the name of all of 11.2 to 11.8.
  static constexpr std::array<std::string_view, 4> kNames = {"libnvrtc.so.13", "libnvrtc.so.12",
                                                             "libnvrtc.so", "libnvrtc.so.11.2"};
  return kNames;
}

std::vector<std::string> nvrtc_directories(const Environment& environment) {
  Directories directories;
  if (environment.cuda_home) directories.add_toolkit(*environment.cuda_home);
  directories.add("");
  directories.add_toolkit("/usr/local/cuda");
  for (const char* directory :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
        "/usr/lib/cuda/lib64", "/opt/cuda/lib64"}) {
    directories.add(directory);
  }
  if (environment.path) add_pythons_on_path(directories, *environment.path);
  if (environment.home) directories.add_python(fs::path(*environment.home) / ".local");
  return directories.take();
}

std::string library_identity(const std::string& path) {
  constexpr std::uint64_t kPart = std::uint64_t{1} << 20;
  const File file(path);
  if (file.size() < 0) return "absent";
  if (auto id = build_id_of(file)) return *id;
  const auto size = static_cast<std::uint64_t>(file.size());
  const std::uint64_t part = std::min(size, kPart);
  const auto first = file.read(0, part);
  const auto last = file.read(size - part, part);
  if (!first || !last) return "absent";
  return std::to_string(size) + "-" + Sha256().add(*first).add(*last).finish().hex();
}

std::string_view nvrtc_install_hint() {
  return "install the CUDA toolkit, or the Debian package libnvrtc12 (nvidia-cuda-toolkit in older "
         "releases), or run: pip install nvidia-cuda-nvrtc";
}

}  // namespace vitune
