// runtime/context/messages.cpp -- Where the library's messages go.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/messages.h"

#include <array>
#include <cstdio>
#include <utility>

namespace vitune {
namespace {

constexpr std::array<std::pair<std::string_view, LogLevel>, 4> kLevels = {
    {{"debug", LogLevel::kDebug},
     {"info", LogLevel::kInfo},
     {"warning", LogLevel::kWarning},
     {"error", LogLevel::kError}}};

LogLevel threshold_of(bool to_callback, const std::optional<std::string>& level) {
  for (const auto& [name, value] : kLevels) {
    if (level == name) return value;
  }
  return to_callback ? LogLevel::kDebug : LogLevel::kWarning;
}

}  // namespace

Messages::Messages(vitune_log_callback callback, void* user,
                   const std::optional<std::string>& level)
    : callback_(callback), user_(user), threshold_(threshold_of(callback != nullptr, level)) {}

void Messages::log(LogLevel level, std::string_view message) noexcept {
  if (level >= threshold_) deliver(level, message);
}

void Messages::say(std::string_view message) noexcept { deliver(LogLevel::kInfo, message); }

void Messages::deliver(LogLevel level, std::string_view message) noexcept {
  try {
    const std::string text(message);
    const std::lock_guard lock(mutex_);
    if (callback_ != nullptr) {
      callback_(user_, static_cast<int32_t>(level), text.c_str());
    } else {
      std::fprintf(stderr, "vitune: %s\n", text.c_str());
    }
  } catch (...) {
    // A message that cannot be delivered, or a callback that throws, must not fail the call.
  }
}

LogSink Messages::sink() {
  return [this](LogLevel level, std::string_view message) { log(level, message); };
}

}  // namespace vitune
