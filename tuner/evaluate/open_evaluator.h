// tuner/evaluate/open_evaluator.h -- The evaluator that a run's options ask for: a recording or the
// GPUs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "core/log.h"
#include "tuner/evaluate/evaluator.h"
#include "tuner/loop/tuner.h"

namespace vitune {

// Throws as LiveEvaluator and Recording::load do. `stop` must outlive the result.
std::unique_ptr<Evaluator> open_evaluator(const TuneOptions& options, const LogSink& log_sink,
                                          const std::atomic<bool>& stop);

}  // namespace vitune
