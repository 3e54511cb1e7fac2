// cli/report/result_files.h -- The smaller files of a report: ceilings, first calls, reference
// kernels, and the figures of the works that vitune starts from.
//
// All are foreign input: what is not as it must be is Error(kFailure) that names the place. Values;
// any thread.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/json_file.h"
#include "tuner/statistics.h"

namespace vitune {

// What `vitune devices --measure --json` found: "hbm_read_tb_s" -> median with its bounds.
struct MeasuredCeilings {
  std::string device, driver;
  std::optional<double> clock_mhz;
  std::map<std::string, Interval> measured;

  std::optional<double> find(const std::string& name) const;
};
MeasuredCeilings read_ceilings(const std::filesystem::path& file);

// A step of a program's first call.
struct ColdStep {
  std::string what;
  double us = 0;
  std::string note;
};
// Of what benchmarks/bench_cold_start wrote with --benchmark_out.
struct ColdStart {
  std::string device, date;
  bool stand_in = false;  // measured over a stand-in for the CUDA driver
  std::vector<ColdStep> steps;
};
ColdStart read_cold_start(const std::filesystem::path& file);

// A row of benchmarks' reference.json: a kernel for teaching, or the tuned one, on one problem.
struct ReferenceRow {
  std::string kernel, problem;
  std::int64_t tokens = 0;
  double us = 0;
  std::optional<double> tflops, gb_s, peak_bytes, err_rms;
};
struct ReferenceResults {
  std::string device;
  std::vector<ReferenceRow> rows;

  const ReferenceRow* find(const std::string& kernel, std::int64_t tokens) const;
};
ReferenceResults read_reference(const std::filesystem::path& file);

// data/reference_works.json: the figures as their authors give them.
struct WorkRow {
  std::string label;
  std::string kernel;  // the kernel of ours to put beside it; empty if there is none
  std::vector<std::string> cells;
};
struct WorkTable {
  std::string title, machine, note;
  std::string first_column;
  std::vector<std::string> columns;
  std::vector<std::int64_t> tokens;  // of each column that has any; shorter than `columns`
  std::vector<WorkRow> rows;
};
struct Work {
  std::string title, source, note;
  std::vector<WorkTable> tables;
};
std::vector<Work> read_works(const std::filesystem::path& file);

}  // namespace vitune
