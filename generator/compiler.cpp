// generator/compiler.cpp -- The only caller of NVRTC.
// SPDX-License-Identifier: Apache-2.0
#include "generator/compiler.h"

#include <dlfcn.h>
#include <link.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "generator/compile_log.h"
#include "generator/compile_options.h"
#include "generator/nvrtc_api.h"
#include "generator/nvrtc_location.h"

namespace vitune {
namespace {

// A library handle; closed only when it turned out to be of no use.
struct Library {
  void* handle = nullptr;
  std::string problem;  // why there is none
};

template <typename Function>
bool load(const Library& library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library.handle, name));
  return function != nullptr;
}

bool load_all(const Library& library, NvrtcApi& api) {
  return load(library, "nvrtcVersion", api.version) &&
         load(library, "nvrtcCreateProgram", api.create_program) &&
         load(library, "nvrtcDestroyProgram", api.destroy_program) &&
         load(library, "nvrtcCompileProgram", api.compile_program) &&
         load(library, "nvrtcGetCUBINSize", api.cubin_size) &&
         load(library, "nvrtcGetCUBIN", api.cubin) &&
         load(library, "nvrtcGetProgramLogSize", api.log_size) &&
         load(library, "nvrtcGetProgramLog", api.log) &&
         load(library, "nvrtcGetErrorString", api.error_string);
}

// Opens `name` (a path, or a bare file name for the loader to find) and fills in `api`.
Library open_library(const std::string& name, NvrtcApi& api, NvrtcVersion& version) {
  Library library;
  library.handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle == nullptr) {
    const char* const reason = dlerror();
    library.problem = reason != nullptr ? reason : "dlopen failed";
    return library;
  }
  if (!load_all(library, api)) {
    library.problem = name + ": lacks functions of NVRTC 11.2; a newer version is needed";
  } else if (api.version(&version.major, &version.minor) != NvrtcApi::kSuccess) {
    library.problem = name + ": nvrtcVersion failed";
  }
  if (!library.problem.empty()) dlclose(std::exchange(library.handle, nullptr));
  return library;
}

std::string path_of(const Library& library, const std::string& fallback) {
  link_map* map = nullptr;
  if (dlinfo(library.handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return fallback;
  return map->l_name;
}

std::string describe_version(NvrtcVersion version, const std::string& path) {
  const std::string number = std::to_string(version.major) + "." + std::to_string(version.minor);
  const auto builtins =
      std::filesystem::path(path).parent_path() / ("libnvrtc-builtins.so." + number);
  Sha256 hash;
  hash.add(library_identity(path)).add(library_identity(builtins.string()));
  return "nvrtc " + number + " " + hash.finish().hex().substr(0, 12);
}

[[noreturn]] void throw_no_compiler(const std::vector<std::string>& directories,
                                    const std::vector<std::string>& problems) {
  std::string text = "no usable libnvrtc (NVIDIA's runtime compiler) was found. Looked in:";
  for (const std::string& directory : directories) {
    text += "\n  " + (directory.empty() ? "the loader's path" : directory);
  }
  for (const std::string& problem : problems) text += "\n  not usable: " + problem;
  throw Error(ErrorCode::kNoCompiler,
              text + "\nTo get it, " + std::string(nvrtc_install_hint()) +
                  ". If it is elsewhere, set CUDA_HOME to the folder that holds its lib64.");
}

bool is_identifier(std::string_view name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  return name.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
         std::string_view::npos;
}

std::vector<const char*> pointers(const std::vector<std::string>& strings) {
  std::vector<const char*> result;
  for (const std::string& text : strings) result.push_back(text.c_str());
  return result;
}

// One NVRTC program, destroyed with its scope.
class Program {
 public:
  // Throws Error(kFailure) with NVRTC's word for it.
  Program(const NvrtcApi& api, const Source& source) : api_(api) {
    std::vector<std::string> names, texts;
    for (const EmbeddedFile& header : source.headers) {
      names.emplace_back(header.path);
      texts.emplace_back(header.text);
    }
    const int result = api.create_program(&program_, source.main.c_str(), "kernel.cu",
                                          static_cast<int>(names.size()), pointers(texts).data(),
                                          pointers(names).data());
    if (result != NvrtcApi::kSuccess) {
      throw Error(ErrorCode::kFailure,
                  std::string("NVRTC cannot create a program: ") + api.error_string(result));
    }
  }
  ~Program() { api_.destroy_program(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int compile(const std::vector<std::string>& options) {
    return api_.compile_program(program_, static_cast<int>(options.size()),
                                pointers(options).data());
  }
  std::string log() const {
    std::size_t size = 0;
    if (api_.log_size(program_, &size) != NvrtcApi::kSuccess || size == 0) return {};
    std::string text(size, '\0');
    if (api_.log(program_, text.data()) != NvrtcApi::kSuccess) return {};
    text.resize(text.find('\0') == std::string::npos ? size : text.find('\0'));
    return text;
  }
  std::vector<std::byte> cubin() const {
    std::size_t size = 0;
    if (api_.cubin_size(program_, &size) != NvrtcApi::kSuccess) return {};
    std::vector<std::byte> image(size);
    if (api_.cubin(program_, reinterpret_cast<char*>(image.data())) != NvrtcApi::kSuccess) {
      return {};
    }
    return image;
  }

 private:
  const NvrtcApi& api_;
  NvrtcApi::Program program_ = nullptr;
};

}  // namespace

std::shared_ptr<const Compiler> Compiler::open(const Environment& environment) {
  return open_in(nvrtc_directories(environment));
}

std::shared_ptr<const Compiler> Compiler::open_in(const std::vector<std::string>& directories) {
  std::shared_ptr<Compiler> compiler(new Compiler);
  compiler->api_ = std::make_unique<NvrtcApi>();
  std::vector<std::string> problems;
  for (const std::string& directory : directories) {
    for (const std::string_view file : nvrtc_file_names()) {
      const std::string name =
          directory.empty() ? std::string(file) : directory + "/" + std::string(file);
      std::error_code error;
      if (!directory.empty() && !std::filesystem::exists(name, error)) continue;
      NvrtcVersion version;
      const Library library = open_library(name, *compiler->api_, version);
      if (library.handle != nullptr) {
        compiler->path_ = path_of(library, name);
        compiler->version_ = describe_version(version, compiler->path_);
        return compiler;
      }
      // That the loader does not know a bare name is the normal case, not a finding.
      if (!directory.empty()) problems.push_back(library.problem);
    }
  }
  throw_no_compiler(directories, problems);
}

Compiler::~Compiler() = default;

CompileResult Compiler::compile(const CompileRequest& request) const {
  if (!is_identifier(request.entry)) {
    throw Error(ErrorCode::kFailure, "'" + request.entry + "' is not the name of a kernel");
  }
  const auto options = compile_options(request, parse_nvrtc_version(version_));
  Program program(*api_, request.source);
  const auto start = std::chrono::steady_clock::now();
  const int code = program.compile(options);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;

  const std::string log = program.log();
  CompileResult result;
  const auto fail = [&](const std::string& why) {
    result.facts.compile_ms = elapsed.count();
    result.log = bounded_log(why + "\n" + log);
    return result;
  };
  if (code != NvrtcApi::kSuccess) return fail(std::string("NVRTC: ") + api_->error_string(code));
  const auto facts = parse_compile_log(log, request.entry);
  if (!facts) return fail("the compiler reports no kernel '" + request.entry + "' in this source");
  // Right, but several times slower than the variant could be: not worth a launch.
  if (log.find("wgmma.mma_async instructions are serialized") != std::string::npos) {
    return fail("ptxas serializes the asynchronous products of this kernel");
  }
  result.cubin = program.cubin();
  if (!cubin_is_well_formed(result.cubin)) {
    result.cubin.clear();
    return fail("NVRTC returned a damaged cubin");
  }
  result.status = CompileStatus::kOk;
  result.facts = *facts;
  result.facts.compile_ms = elapsed.count();
  result.log = bounded_log(log);
  return result;
}

}  // namespace vitune
