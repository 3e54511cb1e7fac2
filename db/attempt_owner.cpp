// db/attempt_owner.cpp -- Packs an attempt's owner and looks it up in /proc.
// SPDX-License-Identifier: Apache-2.0
#include "db/attempt_owner.h"

#include <unistd.h>

#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

namespace vitune {
namespace {

constexpr int kSecondsBits = 34;  // until the year 2514; process numbers take 22
constexpr std::int64_t kSeconds = (std::int64_t{1} << kSecondsBits) - 1;
// Both ends of an age are rounded to seconds.
constexpr double kSlack = 2;

// Seconds that a process has been running; nothing if it has ended, be it that nobody reaped it.
std::optional<double> age_of(std::int64_t pid) {
  constexpr int kFieldsBeforeStart = 18;  // from the third, after the state
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  // The name before it may hold anything.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string state, field;
  fields >> state;
  for (int i = 0; i < kFieldsBeforeStart; ++i) fields >> field;
  double ticks = 0;
  std::timespec now{};
  if (!(fields >> ticks) || state == "Z" || state == "X") return std::nullopt;
  if (::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  const double up = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  return up - ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

std::int64_t packed(const AttemptOwner& owner) {
  return owner.pid << kSecondsBits | (owner.started & kSeconds);
}

AttemptOwner unpacked_owner(std::int64_t column) {
  if (column < 0) return {};
  return {column >> kSecondsBits, column & kSeconds};
}

bool is_alive(const AttemptOwner& owner) {
  if (owner.pid <= 0) return false;
  const auto age = age_of(owner.pid);
  return age && *age + kSlack >= static_cast<double>(std::time(nullptr) - owner.started);
}

}  // namespace vitune
