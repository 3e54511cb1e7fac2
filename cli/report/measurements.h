// cli/report/measurements.h -- Times of vitune and its peers, problem by problem.
//
// Read from a file of benchmarks/peers, else from `vitune tune --json` beside the stored times of
// the peers. Times are microseconds. Values; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "catalogue/problem_set.h"
#include "cli/report/panel.h"
#include "db/records.h"
#include "generator/attention/problem.h"

namespace vitune {

struct PeerFigure {
  std::string peer;
  double us = 0;
};

struct ProblemTimes {
  std::string name;
  AttentionProblem problem;
  std::optional<double> floor_us;
  std::map<std::string, std::array<std::optional<double>, 2>> us;  // peer -> [Objective]
  // peer -> bytes that a call allocates at its peak, its output included
  std::map<std::string, double> memory;

  std::optional<double> time(const std::string& peer, Objective kind) const;
  std::optional<double> peak_memory(const std::string& peer) const;
  // vitune's own.
  std::optional<double> ours(Objective kind) const;
  // The fastest of the peers without vitune's own and without unfused PyTorch.
  std::optional<PeerFigure> best_peer(Objective kind) const;
  // Best peer over vitune: above 1, vitune is faster.
  std::optional<double> speed_up(Objective kind) const;
};

struct Measurements {
  std::string device;         // its name
  std::string date;           // "2026-11-20"; empty if the file has none
  bool replayed = false;      // vitune's times are from a recording
  bool stored_peers = false;  // the peers' times are of another run than vitune's
  std::vector<ProblemTimes> problems;
  std::vector<std::string> notes;  // what was left out, and why

  std::string place() const;  // "NVIDIA H200, 2026-11-20"
  // The times of a problem, nullptr if it was not measured.
  const ProblemTimes* find(const AttentionProblem& problem) const;
  // Peers that have a time, in the order of their paints; without vitune's own.
  std::vector<std::string> peers() const;
};

// Of a document of benchmarks/peers. Throws Error(kUsage) for a file that is none.
Measurements read_peer_measurements(const std::filesystem::path& file);

// Of a document of `vitune tune` or `vitune bench`, with the stored times of `known`.
Measurements read_tune_measurements(const std::filesystem::path& file,
                                    const std::vector<NamedProblem>& known);

// "cuDNN", "FlashAttention-2"; a name that is not known is given back.
std::string peer_label(const std::string& peer);

// How a peer is drawn everywhere; `place` is its position among Measurements::peers().
struct PeerStyle {
  Paint paint;
  Mark mark;
};
PeerStyle peer_style(const std::string& peer, std::size_t place);

// The geometric mean of the speed-ups of one kind, and how many problems are faster or slower.
struct SpeedUps {
  double mean = 1;
  int faster = 0, slower = 0;
  int count() const { return faster + slower; }
};
SpeedUps speed_ups(const Measurements& measurements, Objective kind);

}  // namespace vitune
