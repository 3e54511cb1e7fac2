// runtime/api/last_error.cpp -- From exceptions to statuses and sentences.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/last_error.h"

#include <array>
#include <new>

#include "core/cuda_driver.h"
#include "runtime/context/texts.h"

namespace vitune {
namespace {

// Long enough for any sentence of ours, problem texts included.
constexpr std::size_t kCapacity = 1024;

thread_local std::array<char, kCapacity> sentence_of_thread{};

constexpr std::array kStatusNames = {"VITUNE_OK",
                                     "VITUNE_INVALID_ARGUMENT",
                                     "VITUNE_UNSUPPORTED",
                                     "VITUNE_NO_DEVICE",
                                     "VITUNE_NOT_PREPARED",
                                     "VITUNE_NO_COMPILER",
                                     "VITUNE_DATABASE",
                                     "VITUNE_DEVICE_ERROR",
                                     "VITUNE_INVALID_CONTEXT",
                                     "VITUNE_OUT_OF_MEMORY",
                                     "VITUNE_DISABLED",
                                     "VITUNE_INTERNAL"};
static_assert(kStatusNames.size() == VITUNE_INTERNAL + 1);

}  // namespace

vitune_status fail(vitune_status status, std::string_view sentence) noexcept {
  copy_text(sentence_of_thread.data(), kCapacity, sentence);
  return status;
}

const char* last_error() noexcept { return sentence_of_thread.data(); }

vitune_status status_of(const Error& error) noexcept {
  if (dynamic_cast<const CudaError*>(&error) != nullptr) return VITUNE_DEVICE_ERROR;
  switch (error.code()) {
    case ErrorCode::kUsage:
      return VITUNE_INVALID_ARGUMENT;
    case ErrorCode::kUnsupported:
      return VITUNE_UNSUPPORTED;
    case ErrorCode::kNoDevice:
      return VITUNE_NO_DEVICE;
    case ErrorCode::kDatabase:
      return VITUNE_DATABASE;
    case ErrorCode::kNoCompiler:
      return VITUNE_NO_COMPILER;
    case ErrorCode::kFailure:
    case ErrorCode::kVerification:
    case ErrorCode::kInterrupted:
      break;
  }
  return VITUNE_INTERNAL;
}

vitune_status fail_with_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return fail(status_of(error), error.what());
  } catch (const std::bad_alloc&) {
    return fail(VITUNE_OUT_OF_MEMORY, "the process has no memory left; free some and try again");
  } catch (const std::exception& error) {
    return fail(VITUNE_INTERNAL, error.what());
  } catch (...) {
    return fail(VITUNE_INTERNAL, "an unknown failure inside libvitune; please report it");
  }
}

const char* status_name(vitune_status status) noexcept {
  const auto index = static_cast<std::size_t>(status);
  return status >= 0 && index < kStatusNames.size() ? kStatusNames[index] : "VITUNE_?";
}

}  // namespace vitune
