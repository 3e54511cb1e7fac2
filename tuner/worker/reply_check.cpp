// tuner/worker/reply_check.cpp -- Whether what a bench worker reports can be true.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/reply_check.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace vitune {
namespace {

constexpr double kLongestUs = 3600e6;  // an hour: far beyond any deadline

bool possible(double us) { return std::isfinite(us) && us > 0 && us < kLongestUs; }

bool sound(const Timing& timing) {
  return possible(timing.low_us) && possible(timing.median_us) && possible(timing.high_us) &&
         timing.low_us <= timing.median_us && timing.median_us <= timing.high_us &&
         timing.samples > 0;
}

// A job without measuring leaves its timings empty.
bool sound_or_empty(const Timing& timing) { return timing == Timing{} || sound(timing); }

bool sound(const ErrorFigures& error) {
  const auto figure = [](double value) { return std::isfinite(value) && value >= 0; };
  return figure(error.max_error) && figure(error.rms_error) && figure(error.max_bound) &&
         figure(error.rms_bound) && error.max_error <= error.max_bound &&
         error.rms_error <= error.rms_bound;
}

void check_status(TrialStatus status) {
  switch (status) {
    case TrialStatus::kOk:
    case TrialStatus::kInvalidLaunch:
    case TrialStatus::kOutOfMemory:
    case TrialStatus::kWrong:
    case TrialStatus::kCrash:
    case TrialStatus::kTimeout:
      return;
    default:
      throw Error(ErrorCode::kFailure, "reported a status that it cannot know");
  }
}

bool sound(const std::vector<std::vector<double>>& samples, std::size_t contestants,
           std::size_t rounds) {
  return samples.size() == contestants &&
         std::all_of(samples.begin(), samples.end(), [&](const std::vector<double>& list) {
           return !list.empty() && list.size() <= rounds && list.size() == samples.front().size() &&
                  std::all_of(list.begin(), list.end(), possible);
         });
}

}  // namespace

void check_reply(const TrialReply& reply) {
  check_status(reply.status);
  if (reply.status != TrialStatus::kOk) return;
  const bool good = sound_or_empty(reply.measurement.cold) &&
                    sound_or_empty(reply.measurement.warm) && sound(reply.error);
  if (!good) throw Error(ErrorCode::kFailure, "reported impossible figures");
}

void check_reply(const RaceReply& reply, std::size_t contestants, std::size_t rounds) {
  check_status(reply.status);
  if (reply.status != TrialStatus::kOk) return;
  if (!sound(reply.cold_us, contestants, rounds) || !sound(reply.warm_us, contestants, rounds)) {
    throw Error(ErrorCode::kFailure, "reported impossible figures");
  }
}

// Whoever asked holds the proposals against the space.
void check_reply(const ProposeReply& reply) { check_status(reply.status); }

}  // namespace vitune
