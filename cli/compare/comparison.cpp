// cli/compare/comparison.cpp -- Pairing, intervals of ratios, verdicts, geometric means.
// SPDX-License-Identifier: Apache-2.0
#include "cli/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "core/error.h"

namespace vitune {
namespace {

constexpr int kResamples = 2000;
constexpr std::size_t kTail = 49;  // of the sorted resamples, on each side: 2.5 %
constexpr std::size_t kLeastSamples = 6, kMostSamples = 200;
constexpr std::uint64_t kSeed = 0x76697475;

bool can_resample(const TimedFigure& figure) {
  return figure.samples_us.size() >= kLeastSamples && figure.samples_us.size() <= kMostSamples;
}

double resampled_median(const std::vector<double>& values, std::mt19937_64& random) {
  std::uniform_int_distribution<std::size_t> any(0, values.size() - 1);
  std::vector<double> drawn(values.size());
  for (double& value : drawn) value = values[any(random)];
  return median(std::move(drawn));
}

Interval bootstrap(const std::vector<double>& a, const std::vector<double>& b) {
  std::mt19937_64 random(kSeed);
  std::vector<double> ratios(kResamples);
  for (double& ratio : ratios) {
    const double of_a = resampled_median(a, random);
    ratio = resampled_median(b, random) / of_a;
  }
  std::sort(ratios.begin(), ratios.end());
  return {median(b) / median(a), ratios[kTail], ratios[kResamples - 1 - kTail]};
}

double squared_log(double ratio) { return std::log(ratio) * std::log(ratio); }

Interval combined(const Interval& a, const Interval& b) {
  const double down = std::sqrt(squared_log(b.median / b.low) + squared_log(a.high / a.median));
  const double up = std::sqrt(squared_log(b.high / b.median) + squared_log(a.median / a.low));
  const double ratio = b.median / a.median;
  return {ratio, ratio * std::exp(-down), ratio * std::exp(up)};
}

TimeChange judge(const RatioInterval& r, double threshold) {
  const bool up = r.ratio > 1 + threshold, down = r.ratio < 1 / (1 + threshold);
  if (!up && !down) return TimeChange::kSame;
  if (up && r.interval && r.interval->low > 1) return TimeChange::kSlower;
  if (down && r.interval && r.interval->high < 1) return TimeChange::kFaster;
  return TimeChange::kUnclear;
}

// Finds the row that stands for the same thing in another file.
class Index {
 public:
  explicit Index(const std::vector<TimedRow>& rows) : rows_(rows), taken_(rows.size()) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].problem.empty()) by_problem_.emplace(rows[i].kind + ' ' + rows[i].problem, i);
      by_name_.emplace(rows[i].kind + ' ' + rows[i].name, i);
    }
  }
  const TimedRow* take(const TimedRow& row) {
    auto found = by_problem_.find(row.kind + ' ' + row.problem);
    if (found == by_problem_.end()) {
      found = by_name_.find(row.kind + ' ' + row.name);
      if (found == by_name_.end()) return nullptr;
      // The same name for different problems is a coincidence.
      if (!row.problem.empty() && !rows_[found->second].problem.empty()) return nullptr;
    }
    if (taken_[found->second]) return nullptr;
    taken_[found->second] = true;
    return &rows_[found->second];
  }
  std::vector<TimedRow> left() const {
    std::vector<TimedRow> rows;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (!taken_[i]) rows.push_back(rows_[i]);
    }
    return rows;
  }

 private:
  const std::vector<TimedRow>& rows_;
  std::vector<bool> taken_;
  std::map<std::string, std::size_t> by_problem_, by_name_;
};

std::vector<TimedRow> of_kind(const std::vector<TimedRow>& rows, const std::string& kind) {
  std::vector<TimedRow> chosen;
  for (const TimedRow& row : rows) {
    if (kind == "both" || row.kind == kind) chosen.push_back(row);
  }
  return chosen;
}

MeanRatio mean_ratio(const std::vector<ComparedRow>& rows, const std::string& kind) {
  MeanRatio mean{kind, 0, {}};
  double logs = 0, down = 0, up = 0;
  bool bounded = true;
  for (const ComparedRow& row : rows) {
    if (row.kind != kind) continue;
    ++mean.rows;
    logs += std::log(row.ratio.ratio);
    bounded = bounded && row.ratio.interval;
    if (!bounded) continue;
    down += squared_log(row.ratio.ratio / row.ratio.interval->low);
    up += squared_log(row.ratio.interval->high / row.ratio.ratio);
  }
  const double count = static_cast<double>(mean.rows);
  const double ratio = std::exp(logs / count);
  mean.ratio.ratio = ratio;
  if (!bounded) return mean;
  mean.ratio.interval = Interval{ratio, ratio * std::exp(-std::sqrt(down) / count),
                                 ratio * std::exp(std::sqrt(up) / count)};
  mean.ratio.method = "intervals";
  return mean;
}

}  // namespace

RatioInterval time_ratio(const TimedFigure& a, const TimedFigure& b) {
  RatioInterval result{b.median_us / a.median_us, std::nullopt, "none"};
  if (can_resample(a) && can_resample(b)) {
    result.interval = bootstrap(a.samples_us, b.samples_us);
    result.method = "bootstrap";
  } else if (a.bounds && b.bounds && (a.few || b.few)) {
    result.interval =
        Interval{result.ratio, b.bounds->low / a.bounds->high, b.bounds->high / a.bounds->low};
    result.method = "extremes";
  } else if (a.bounds && b.bounds) {
    result.interval = combined(*a.bounds, *b.bounds);
    result.method = "intervals";
  }
  return result;
}

std::string verdict_name(TimeChange verdict) {
  switch (verdict) {
    case TimeChange::kSame:
      return "same";
    case TimeChange::kSlower:
      return "slower";
    case TimeChange::kFaster:
      return "faster";
    case TimeChange::kUnclear:
      break;
  }
  return "unclear";
}

std::size_t Comparison::slower() const {
  return static_cast<std::size_t>(
      std::ranges::count(rows, TimeChange::kSlower, &ComparedRow::verdict));
}

Comparison compare(const TimingFile& a, const TimingFile& b, double threshold,
                   const std::string& kind, const std::atomic<bool>& stop) {
  Comparison result;
  const std::vector<TimedRow> of_b = of_kind(b.rows, kind);
  Index index(of_b);
  for (const TimedRow& row : of_kind(a.rows, kind)) {
    if (stop) throw Error(ErrorCode::kInterrupted, "the comparison was interrupted");
    const TimedRow* other = index.take(row);
    if (other == nullptr) {
      result.only_a.push_back(row);
      continue;
    }
    ComparedRow compared{row.name,
                         row.problem.empty() ? other->problem : row.problem,
                         row.kind,
                         row.figure.median_us,
                         other->figure.median_us,
                         time_ratio(row.figure, other->figure),
                         TimeChange::kSame,
                         row.figure.low_confidence || other->figure.low_confidence};
    compared.verdict = judge(compared.ratio, threshold);
    result.rows.push_back(std::move(compared));
  }
  result.only_b = index.left();
  for (const char* each : {"cold", "warm", "time"}) {
    MeanRatio mean = mean_ratio(result.rows, each);
    if (mean.rows > 0) result.means.push_back(std::move(mean));
  }
  return result;
}

}  // namespace vitune
