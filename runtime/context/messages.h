// runtime/context/messages.h -- Where the library's messages go: the caller's callback, else
// stderr.
//
// Any thread; one message at a time per object.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/log.h"
#include "vitune/vitune.h"

namespace vitune {

class Messages {
 public:
  // Without a callback, warnings and errors go to stderr; with one, it gets everything.
  // `level` (VITUNE_LOG_LEVEL: "debug", "info", "warning", "error") moves the threshold of either.
  Messages(vitune_log_callback callback, void* user, const std::optional<std::string>& level);

  void log(LogLevel level, std::string_view message) noexcept;
  // Says a line that the user asked to see: it goes to stderr or the callback whatever the
  // threshold.
  void say(std::string_view message) noexcept;
  // log() as a sink; must not outlive this object.
  LogSink sink();

 private:
  void deliver(LogLevel level, std::string_view message) noexcept;

  const vitune_log_callback callback_;
  void* const user_;
  LogLevel threshold_;
  std::mutex mutex_;  // held while a message is handed over
};

}  // namespace vitune
