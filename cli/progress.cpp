// cli/progress.cpp -- Words and pace of the progress line.
#include "cli/progress.h"

#include <fmt/format.h>

#include "cli/text.h"

namespace vitune {

std::string progress_text(const TuneProgress& progress) {
  // Figures first: the end of the line is what a narrow terminal cuts off.
  std::string text = fmt::format("[{}/{}] {} {}", progress.problem_index + 1,
                                 progress.problem_count, progress.phase, progress.done);
  if (progress.planned > 0) text += fmt::format("/{}", progress.planned);
  if (progress.best_us) text += fmt::format(", best {} us", microseconds_text(*progress.best_us));
  if (progress.pruned > 0) text += fmt::format(", {} pruned", progress.pruned);
  if (progress.failed > 0) text += fmt::format(", {} failed", progress.failed);
  text += fmt::format(", {}", duration_text(progress.elapsed));
  if (progress.eta) text += fmt::format(", {} left", duration_text(*progress.eta));
  text += fmt::format(": {}", progress.problem);
  if (progress.best_us && !progress.best_config.empty())
    text += fmt::format("  {}", progress.best_config);
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
