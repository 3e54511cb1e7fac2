// cli/report/result_files.h -- The smaller files of a report: ceilings, first calls, reference
// kernels, and the figures of the works that vitune starts from.
//
// All are foreign input: what is not as it must be is Error(kUsage) that names the place. Values;
// any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments/json_file.h"
#include "tuner/measure/statistics.h"

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
  std::string peer;  // whose call it is; empty: vitune's
};
// Of what benchmarks/bench_cold_start wrote with --benchmark_out.
struct ColdStart {
  std::string device, date;
  bool stand_in = false;  // measured over a stand-in for the CUDA driver
  std::vector<ColdStep> steps;
};
ColdStart read_cold_start(const std::filesystem::path& file);

// What benchmarks/peers --first-calls found of one peer: host time in fresh processes,
// microseconds.
struct FirstCall {
  std::string peer;
  double import_torch = 0, cuda_context = 0;  // come before, in no other figure
  double first = 0, second = 0, later = 0;    // calls of one problem
  double next_problem = 0;                    // first call of another problem, after those
  int samples = 0;                            // processes
};
struct FirstCalls {
  std::string device, date, problem, next_problem;
  std::vector<FirstCall> peers;
  std::map<std::string, std::string> left_out;  // peer -> why

  const FirstCall* find(const std::string& peer) const;
};
FirstCalls read_first_calls(const std::filesystem::path& file);

// A row of benchmarks' reference.json: a kernel for teaching, or the tuned one, on one problem.
struct ReferenceRow {
  std::string kernel, problem;
  double us = 0;
  std::optional<double> tflops, gb_s;
  std::optional<double> call_bytes;  // what a call allocates, its output included
  std::optional<double> err_rms;
};
struct ReferenceResults {
  std::string device, date;  // date: empty if the file has none
  std::vector<ReferenceRow> rows;

  std::string place() const;  // "NVIDIA H200, 2026-11-20"
  // problem: canonical text.
  const ReferenceRow* find(const std::string& kernel, const std::string& problem) const;
};
ReferenceResults read_reference(const std::filesystem::path& file);

// data/reference_works.json: the figures as their authors give them.
struct WorkRow {
  std::string label;
  std::string kernel;   // the kernel or peer to put beside it; empty if there is none
  bool memory = false;  // the cells are peak memory, else times
  std::vector<std::string> cells;
};
struct WorkTable {
  std::string title, machine, note;
  std::string picture;  // a name for the picture of its times; empty: none is drawn
  std::string first_column;
  std::vector<std::string> columns;
  std::vector<std::string> problems;  // canonical, of each column that has one; else empty
  std::vector<WorkRow> rows;
};
struct Work {
  std::string title, source, note;
  std::vector<WorkTable> tables;
};
std::vector<Work> read_works(const std::filesystem::path& file);

}  // namespace vitune
