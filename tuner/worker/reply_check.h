// tuner/worker/reply_check.h -- Whether what a bench worker reports can be true.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "tuner/worker/protocol.h"

namespace vitune {

// Each throws Error(kFailure), whose text completes "the bench worker ...", for a status that a
// bench worker cannot give, or for a success without sound figures.
void check_reply(const TrialReply& reply);
void check_reply(const RaceReply& reply, std::size_t contestants, std::size_t rounds);
void check_reply(const ProposeReply& reply);

}  // namespace vitune
