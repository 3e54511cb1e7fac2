// cli/compare/timing_figures.h -- Figures with their uncertainty, from what a file of times may
// hold.
//
// Shared by the readers of timing_files.h alone. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/arguments/json_file.h"
#include "cli/compare/timing_files.h"

namespace vitune {

// A time in microseconds: above 0, at most 10^12; anything else is refused.
double positive_us(const JsonValue& value, double scale = 1);

// The figure of single measurements; `samples_us` must not be empty.
TimedFigure figure_of_samples(std::vector<double> samples_us);

// The figure of a median (or mean) whose measurements have the standard deviation `log_deviation`
// of their logarithms, `count` of them: 1.96 times the median's standard error, which is
// 1.2533 log_deviation / sqrt(count) for normal logarithms.
TimedFigure figure_of_deviation(double median_us, double log_deviation, double count);

// The figure of a median with the tenth and ninetieth percentile of its measurements; these two are
// themselves the bounds if their count is not known (0).
TimedFigure figure_of_percentiles(double median_us, double p10_us, double p90_us, double count);

// The canonical text of a problem, or nothing for a text that is none (of a newer version, say).
std::optional<std::string> canonical_problem(const std::string& text);

// Appends the rows of a Google Benchmark document to `file`.
void read_google_benchmark(const JsonValue& document, const std::string& peer, TimingFile& file);

}  // namespace vitune
