// cli/output/progress.cpp -- Words and pace of the progress line.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/progress.h"

#include "cli/output/text.h"
#include "core/format.h"

namespace vitune {

std::string progress_text(const TuneProgress& progress) {
  // Figures first: the end of the line is what a narrow terminal cuts off.
  std::string text = formatted("[{}/{}] {} {}", progress.problem_index + 1, progress.problem_count,
                               progress.phase, progress.done);
  if (progress.planned > 0) text += formatted("/{}", progress.planned);
  if (progress.best_us) text += formatted(", best {} us", microseconds_text(*progress.best_us));
  if (progress.pruned > 0) text += formatted(", {} pruned", progress.pruned);
  if (progress.failed > 0) text += formatted(", {} failed", progress.failed);
  text += formatted(", {}", duration_text(progress.elapsed));
  if (progress.eta) text += formatted(", {} left", duration_text(*progress.eta));
  text += formatted(": {}", progress.problem);
  return text;
}

void ProgressLine::operator()(const TuneProgress& progress) {
  const auto pace = console_.progress_is_rewritten() ? std::chrono::milliseconds(100)
                                                     : std::chrono::milliseconds(2000);
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < pace) return;
  shown_ = now;
  console_.progress(progress_text(progress));
}

}  // namespace vitune
