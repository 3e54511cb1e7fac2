// core/log.h -- Where messages go: a sink handed down by the caller; nothing global.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

namespace vitune {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Called from the thread that logs; must not throw. An empty sink drops everything.
using LogSink = std::function<void(LogLevel, std::string_view)>;

inline void log(const LogSink& sink, LogLevel level, std::string_view message) {
  if (sink) sink(level, message);
}

}  // namespace vitune
