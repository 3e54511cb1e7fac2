// model/model_file.cpp -- Holds the header of a model file against the file's size, claim by claim.
// SPDX-License-Identifier: Apache-2.0
#include "model/model_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json_bounds.h"
#include "core/json_fault.h"
#include "core/printable.h"

namespace vitune {
namespace {

using nlohmann::json;

constexpr const char* kGraphKey = "vitune.graph";
constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kDigestDigits = 64;
constexpr const char* kAgain = "export the model again (docs/model_file.md)";
// Bounds of a header: each tensor has a type, a list of extents, one of two offsets.
constexpr JsonBounds kHeaderBounds{20'000 * 16, 4, true};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorCode::kUsage, formatted("{}: {}", path.string(), what));
}

[[noreturn]] void damaged(const std::filesystem::path& path, const std::string& what) {
  refuse(path, formatted("{}; {}", what, kAgain));
}

// Opening alone does something to some devices, and a pipe would wait for its other end.
UniqueFd opened(const std::filesystem::path& path, std::int64_t& bytes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    refuse(path, formatted("cannot be opened: {}; check the path",
                           std::error_code(errno, std::generic_category()).message()));
  }
  if (!S_ISREG(status.st_mode)) refuse(path, "is not a regular file; name a model file");
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) {
    refuse(path, formatted("cannot be opened: {}; check its permissions",
                           std::error_code(errno, std::generic_category()).message()));
  }
  if (!S_ISREG(status.st_mode)) refuse(path, "is not a regular file; name a model file");
  bytes = static_cast<std::int64_t>(status.st_size);
  return fd;
}

// Reads exactly `size` bytes at `offset`. By pread: of a mapped file that shrinks meanwhile nothing
// would be left but a signal.
void read_exactly(const std::filesystem::path& path, int fd, std::int64_t offset, char* to,
                  std::size_t size) {
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got =
        ::pread(fd, to + have, size - have, static_cast<off_t>(offset) + static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      refuse(path, formatted("cannot be read: {}; check the disk",
                             std::error_code(errno, std::generic_category()).message()));
    }
    if (got == 0) {
      refuse(path, "was cut short while it was read; wait until it is written, then try again");
    }
    have += static_cast<std::size_t>(got);
  }
}

std::int64_t header_length(const std::filesystem::path& path, int fd, std::int64_t bytes) {
  if (bytes < kLengthBytes) {
    damaged(path, formatted("has {} bytes, fewer than the length of a header", bytes));
  }
  std::array<unsigned char, kLengthBytes> raw{};
  read_exactly(path, fd, 0, reinterpret_cast<char*>(raw.data()), raw.size());
  std::uint64_t length = 0;
  for (std::size_t i = raw.size(); i-- > 0;) length = (length << 8) | raw[i];
  if (length > static_cast<std::uint64_t>(kMaxHeaderBytes)) {
    damaged(path, formatted("claims a header of {} bytes; 16 MiB are the most", length));
  }
  if (static_cast<std::int64_t>(length) > bytes - kLengthBytes) {
    damaged(path, formatted("claims a header of {} bytes and has {} in all: it is cut short, or no "
                            "safetensors file",
                            length, bytes));
  }
  return static_cast<std::int64_t>(length);
}

json parsed_header(const std::filesystem::path& path, const std::string& text) {
  require_bounds(text, kHeaderBounds, path.string());
  try {
    return json::parse(text.begin(), text.end());
  } catch (const json::exception& error) {
    damaged(path, formatted("its header is no valid JSON ({})", json_fault(error.what())));
  }
}

void require_name(const std::filesystem::path& path, const std::string& name) {
  if (name.empty() || name.size() > kMaxTensorName || !is_printable(name)) {
    damaged(path,
            "has a tensor whose name is empty, longer than 200 bytes, or has control "
            "characters");
  }
}

std::string type_of(const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kTypes = {
      {{"BF16", "bf16"}, {"F16", "fp16"}, {"F32", "fp32"}, {"BOOL", "bool"}, {"U8", "u8"}}};
  for (const auto& [stored, ours] : kTypes) {
    if (stored == name) return std::string(ours);
  }
  return "";
}

// A number of the header, which is an integer that is not negative.
std::int64_t number(const std::filesystem::path& path, const std::string& tensor,
                    const json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() < std::uint64_t{1} << 62) {
    return static_cast<std::int64_t>(value.get<std::uint64_t>());
  }
  damaged(path, formatted("tensor '{}' has an extent or offset that is no integer from 0 to 2^62",
                          tensor));
}

const json& member(const std::filesystem::path& path, const std::string& tensor, const json& entry,
                   const char* key, json::value_t type) {
  const auto found = entry.find(key);
  if (found == entry.end() || found->type() != type) {
    damaged(path, formatted("tensor '{}' has no {} of the kind that safetensors has", tensor, key));
  }
  return *found;
}

StoredTensor tensor_of(const std::filesystem::path& path, const std::string& name,
                       const json& entry) {
  require_name(path, name);
  if (!entry.is_object() || entry.size() != 3) {
    damaged(path, formatted("tensor '{}' is not a type, a shape and two offsets", name));
  }
  StoredTensor tensor{name, "", {}, 0, 0};
  const auto stored = member(path, name, entry, "dtype", json::value_t::string).get<std::string>();
  tensor.type = type_of(stored);
  if (tensor.type.empty()) {
    damaged(path, formatted("tensor '{}' has type '{}'; format 1 has BF16, F16, F32, BOOL and U8",
                            name, shown_name(stored, 40)));
  }
  const json& shape = member(path, name, entry, "shape", json::value_t::array);
  const json& offsets = member(path, name, entry, "data_offsets", json::value_t::array);
  if (shape.size() > kMaxTensorDims || offsets.size() != 2) {
    damaged(path, formatted("tensor '{}' has more than 8 dimensions, or not two offsets", name));
  }
  std::optional<std::int64_t> size = model_type_bytes(tensor.type);
  for (const json& extent : shape) {
    tensor.shape.push_back(number(path, name, extent));
    if (tensor.shape.back() == 0) damaged(path, formatted("tensor '{}' is empty", name));
    if (size) size = checked_mul(*size, tensor.shape.back());
  }
  tensor.begin = number(path, name, offsets[0]);
  tensor.end = number(path, name, offsets[1]);
  if (!size || tensor.end < tensor.begin || tensor.end - tensor.begin != *size) {
    damaged(path, formatted("tensor '{}' has other bytes than its shape and type need", name));
  }
  return tensor;
}

// The tensors must lie one behind the other from the header to the file's end.
void require_no_gaps(const ModelContainer& file) {
  std::int64_t at = 0;
  for (const StoredTensor& tensor : file.tensors) {
    if (tensor.begin != at) {
      damaged(file.path,
              formatted("tensor '{}' does not begin where the one before it ends", tensor.name));
    }
    at = tensor.end;
  }
  const std::int64_t data = file.bytes - kLengthBytes - file.header_bytes;
  if (at != data) {
    damaged(file.path, formatted("its tensors have {} bytes, and {} are there: it is cut short, or "
                                 "has something behind them",
                                 at, data));
  }
}

void take_metadata(ModelContainer& file, const json& entry) {
  if (!entry.is_object()) damaged(file.path, "its __metadata__ is no object");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string() || key.size() > kMaxTensorName || !is_printable(key)) {
      damaged(file.path, "has metadata that are no texts under printable names");
    }
    const auto& text = value.get_ref<const std::string&>();
    const auto most = key == kGraphKey ? std::size_t{kMaxGraphBytes} : kMaxMetadataText;
    if (text.size() > most) {
      damaged(file.path, formatted("its metadata '{}' have {} bytes; {} are the most", key,
                                   text.size(), most));
    }
    file.metadata[key] = text;
  }
}

void require_format(const ModelContainer& file) {
  const std::string& format = file.text("vitune.format");
  if (format.empty()) {
    refuse(file.path, "holds tensors and no graph of a model: vitune.export() writes both");
  }
  if (format != std::to_string(kModelFormat)) {
    throw Error(ErrorCode::kUnsupported,
                formatted("{}: is of format '{}', and this vitune reads format {}; take a newer "
                          "vitune, or export it by this one",
                          file.path.string(), shown_name(format, 20), kModelFormat));
  }
}

void read_header(ModelContainer& file) {
  const std::filesystem::path& path = file.path;
  const int fd = file.handle->get();
  file.header_bytes = header_length(path, fd, file.bytes);
  std::string text(static_cast<std::size_t>(file.header_bytes), '\0');
  read_exactly(path, fd, kLengthBytes, text.data(), text.size());
  const json header = parsed_header(path, text);
  if (!header.is_object()) damaged(path, "its header is no JSON object");
  if (header.size() - header.count("__metadata__") > kMaxModelTensors) {
    damaged(path, formatted("has more than {} tensors", kMaxModelTensors));
  }
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      take_metadata(file, entry);
    } else {
      file.tensors.push_back(tensor_of(path, name, entry));
    }
  }
  std::ranges::sort(file.tensors, {},
                    [](const StoredTensor& tensor) { return std::pair(tensor.begin, tensor.end); });
  require_no_gaps(file);
  require_format(file);
}

// The header's text as it was before its digest was known: its value empty, and as many blanks
// behind the text. Nothing, if the digest does not stand in it as vitune writes it.
std::optional<std::string> undigested(const std::string& text, const std::string& digest) {
  const std::string written = formatted("\"vitune.digest\":\"{}\"", digest);
  const std::size_t place = text.find(written);
  if (digest.size() != kDigestDigits || place == std::string::npos) return std::nullopt;
  std::string before = text;
  before.erase(place + written.size() - 1 - kDigestDigits, kDigestDigits);
  before.append(kDigestDigits, ' ');
  return before;
}

}  // namespace

std::int64_t model_type_bytes(const std::string& type) {
  if (type == "bf16" || type == "fp16") return 2;
  if (type == "fp32") return 4;
  return type == "bool" || type == "u8" ? 1 : 0;
}

const std::string& ModelContainer::text(const std::string& key) const {
  static const std::string none;
  const auto found = metadata.find(key);
  return found == metadata.end() ? none : found->second;
}

ModelContainer load_model_file(const std::filesystem::path& path) {
  ModelContainer file{.path = path,
                      .bytes = 0,
                      .header_bytes = 0,
                      .tensors = {},
                      .metadata = {},
                      .handle = nullptr};
  file.handle = std::make_shared<const UniqueFd>(opened(path, file.bytes));
  read_header(file);
  return file;
}

void read_model_bytes(const ModelContainer& file, std::int64_t begin, void* to, std::size_t size) {
  read_exactly(file.path, file.handle->get(), kLengthBytes + file.header_bytes + begin,
               static_cast<char*>(to), size);
}

DigestCheck check_model_digest(const ModelContainer& file) {
  struct stat status {};
  if (::fstat(file.handle->get(), &status) != 0 || status.st_size != file.bytes) {
    refuse(file.path, "has another size than a moment ago; wait until it is written, try again");
  }
  std::string header(static_cast<std::size_t>(kLengthBytes + file.header_bytes), '\0');
  read_exactly(file.path, file.handle->get(), 0, header.data(), header.size());
  const std::string& digest = file.text("vitune.digest");
  const std::optional<std::string> before = undigested(header, digest);
  if (!before) return DigestCheck::kAbsent;
  Sha256 sum;
  sum.append(std::as_bytes(std::span(before->data(), before->size())));
  const std::int64_t bytes = file.bytes - kLengthBytes - file.header_bytes;
  std::string piece(static_cast<std::size_t>(std::min<std::int64_t>(bytes, 1 << 20)), '\0');
  for (std::int64_t at = 0; at < bytes;) {
    const auto size = static_cast<std::size_t>(
        std::min<std::int64_t>(bytes - at, static_cast<std::int64_t>(piece.size())));
    read_model_bytes(file, at, piece.data(), size);
    sum.append(std::as_bytes(std::span(piece.data(), size)));
    at += static_cast<std::int64_t>(size);
  }
  return sum.finish().hex() == digest ? DigestCheck::kSame : DigestCheck::kDiffers;
}

}  // namespace vitune
