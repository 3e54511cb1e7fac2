// generator/cublaslt.cpp -- Finding and opening libcublasLt.
// SPDX-License-Identifier: Apache-2.0
#include "generator/cublaslt.h"

#include <dlfcn.h>

#include <array>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "generator/nvrtc_location.h"

namespace vitune {
namespace {

constexpr std::array<const char*, 2> kNames = {"libcublasLt.so.13", "libcublasLt.so.12"};

template <typename Function>
bool find(void* library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  return function != nullptr;
}

bool find_all(void* library, CublasLtApi& api) {
  return find(library, "cublasLtGetVersion", api.version) &&
         find(library, "cublasLtGetStatusName", api.status_name) &&
         find(library, "cublasLtCreate", api.create) &&
         find(library, "cublasLtDestroy", api.destroy) &&
         find(library, "cublasLtMatrixLayoutInit_internal", api.layout_init) &&
         find(library, "cublasLtMatmulDescInit_internal", api.operation_init) &&
         find(library, "cublasLtMatmulDescSetAttribute", api.operation_set) &&
         find(library, "cublasLtMatmulPreferenceInit_internal", api.preference_init) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", api.preference_set) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", api.propose) &&
         find(library, "cublasLtMatmulAlgoCheck", api.check) &&
         find(library, "cublasLtMatmul", api.matmul);
}

std::string path_of(void* symbol, const std::string& fallback) {
  Dl_info info;
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return fallback;
  return info.dli_fname;
}

// Opens `name` and fills in `library`; else says why not. It stays loaded in any case: unloading it
// is not safe where others use it.
std::optional<std::string> try_open(const std::string& name, int flags, CublasLt& library) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    return reason != nullptr ? reason : name + ": dlopen failed";
  }
  if (!find_all(handle, library.api)) return name + ": lacks functions of cuBLASLt 12";
  library.version = static_cast<std::int64_t>(library.api.version());
  library.path = path_of(reinterpret_cast<void*>(library.api.version), name);
  return std::nullopt;
}

}  // namespace

CublasLt CublasLt::open(const Environment& environment) {
  CublasLt library;
  if (environment.cublaslt) {
    // It would be another file in every working directory, and a mere name whichever comes first.
    if (environment.cublaslt->front() != '/') {
      throw Error(ErrorCode::kUnsupported,
                  formatted("VITUNE_CUBLASLT is '{}', which is no absolute path; give that of the "
                            "file, or unset it",
                            *environment.cublaslt));
    }
    const auto why = try_open(*environment.cublaslt, 0, library);
    if (!why) return library;
    throw Error(ErrorCode::kUnsupported, "VITUNE_CUBLASLT cannot be opened: " + *why);
  }
  for (const char* const name : kNames) {
    if (!try_open(name, RTLD_NOLOAD, library)) return library;
  }
  for (const std::string& directory : nvrtc_directories(environment)) {
    for (const char* const name : kNames) {
      const std::string path = directory.empty() ? name : directory + "/" + name;
      if (!try_open(path, 0, library)) return library;
    }
  }
  throw Error(
      ErrorCode::kUnsupported,
      "no libcublasLt.so.13 or .so.12 was found; set VITUNE_CUBLASLT to its path, or install "
      "the CUDA toolkit");
}

std::string cublaslt_name(std::int64_t version) {
  return formatted("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

CublasLtHandle::CublasLtHandle(std::shared_ptr<const CublasLt> opened)
    : library(std::move(opened)) {
  const int status = library->api.create(&handle);
  if (status == CublasLtApi::kSuccess) return;
  throw Error(ErrorCode::kUnsupported,
              formatted("{} of {} gives no handle: {}", cublaslt_name(library->version),
                        library->path, library->api.status_name(status)));
}

CublasLtHandle::~CublasLtHandle() { library->api.destroy(handle); }

const CublasLt* Libraries::opened() {
  if (!library_ && absent_.empty()) {
    try {
      library_ = std::make_shared<const CublasLt>(CublasLt::open(environment_));
    } catch (const Error& error) {
      absent_ = error.what();
    }
  }
  return library_.get();
}

std::shared_ptr<const CublasLtHandle> Libraries::cublaslt() {
  const std::lock_guard lock(mutex_);
  if (handle_) return handle_;
  if (opened() == nullptr) throw Error(ErrorCode::kUnsupported, absent_);
  handle_ = std::make_shared<const CublasLtHandle>(library_);
  return handle_;
}

std::optional<std::string> Libraries::lacks_cublaslt(std::int64_t version) {
  const std::lock_guard lock(mutex_);
  const CublasLt* const library = opened();
  const std::string wanted = cublaslt_name(version);
  if (library == nullptr) return formatted("it calls {}: {}", wanted, absent_);
  if (library->version == version) return std::nullopt;
  return formatted(
      "it calls {}, and {} is {}; set VITUNE_CUBLASLT to the other one's path, or tune the problem "
      "with this one",
      wanted, library->path, cublaslt_name(library->version));
}

}  // namespace vitune
