// tests/faults/soak.cpp -- The engines for a long time, two processes at once, and one table of
// what came of it.
//
// Usage: vitune_soak COUNT [SEED [VERSION]]: COUNT failing calls and kills, ten times as many power
// cuts and mutants. Status 1 if anything was found.
// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>

#include "core/format.h"
#include "db/sqlite.h"
#include "tests/faults/engines.h"
#include "tests/faults/operations.h"

namespace vitune::faults {
namespace {

constexpr std::size_t kProcesses = 2;
constexpr std::size_t kMostShown = 20;

struct Engine {
  const char* name;
  Tally (*run)(const Work&);
  std::size_t times;  // COUNT
};
constexpr Engine kEngines[] = {{"power cuts (simulated disk)", cut_power, 10},
                               {"damaged files (mutants)", damage_files, 10},
                               {"killed at a file call", kill_at_calls, 1},
                               {"a file call fails", fail_calls, 1}};

void write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(fd, text.data() + at, text.size() - at);
    if (written <= 0) ::_exit(2);
    at += static_cast<std::size_t>(written);
  }
}

std::string in_one_line(std::string text) {
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return text;
}

// A process of its own does one share of the work; what it found comes through the pipe.
struct Share {
  pid_t process = -1;
  int pipe = -1;
};

Share start(const Engine& engine, const Work& work) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t process = ::fork();
  if (process < 0) throw std::runtime_error("no process");
  if (process > 0) {
    ::close(ends[1]);
    return {process, ends[0]};
  }
  try {
    const Tally tally = engine.run(work);
    std::string text = formatted("{} {} {} {} {}\n", tally.runs, tally.possible, tally.effective,
                                 tally.controls, tally.control_findings);
    for (const std::string& line : tally.findings) text += in_one_line(line) + "\n";
    write_all(ends[1], text);
  } catch (const std::exception& error) {
    std::cerr << engine.name << ": " << error.what() << "\n";
    ::_exit(2);
  }
  ::_exit(0);
}

void add(const Share& share, Tally& sum) {
  std::string text;
  char block[4096];
  for (ssize_t count = 0; (count = ::read(share.pipe, block, sizeof block)) > 0;)
    text.append(block, static_cast<std::size_t>(count));
  ::close(share.pipe);
  int status = 0;
  ::waitpid(share.process, &status, 0);
  if (status != 0)
    sum.findings.push_back("the engine itself ended with status " + std::to_string(status));
  std::istringstream lines(text);
  Tally tally;
  lines >> tally.runs >> tally.possible >> tally.effective >> tally.controls >>
      tally.control_findings;
  lines.ignore();
  sum.runs += tally.runs;
  sum.possible = tally.possible;
  sum.effective += tally.effective;
  sum.controls += tally.controls;
  sum.control_findings += tally.control_findings;
  for (std::string line; std::getline(lines, line);) sum.findings.push_back(line);
}

Tally run(const Engine& engine, std::size_t count, std::uint32_t seed) {
  std::vector<Share> shares;
  for (std::size_t i = 0; i < kProcesses; ++i)
    shares.push_back(start(engine, {count, seed, i, kProcesses}));
  Tally sum;
  for (const Share& share : shares) add(share, sum);
  return sum;
}

std::string heading(std::uint32_t seed, const std::string& version) {
  std::string names;
  for (const Operation& operation : operations())
    names += (names.empty() ? "" : ", ") + operation.name();
  const std::string sqlite =
      Connection({}, Connection::Mode::kMemory).text("SELECT sqlite_version()");
  return formatted(
      "# Faults by the thousand\n\n"
      "`make soak`; vitune {}, SQLite {}, seed {}. The commands: {}. What each engine does and "
      "what "
      "counts as a finding: `tests/faults/engines.h`, `tests/faults/operations.h`.\n\n"
      "| engine | runs | different ones possible | with effect | findings | controls gone wrong, "
      "as they must | "
      "seconds |\n|---|--:|--:|--:|--:|--:|--:|\n",
      version, sqlite, seed, names);
}

std::string or_none(std::size_t number, const std::string& text) {
  return number == 0 ? "-" : text;
}

int soak(std::size_t count, std::uint32_t seed, const std::string& version) {
  std::cout << heading(seed, version) << std::flush;
  std::vector<std::string> findings;
  for (const Engine& engine : kEngines) {
    const auto begin = std::chrono::steady_clock::now();
    const Tally tally = run(engine, count * engine.times, seed);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cout << formatted("| {} | {} | {} | {} | {} | {} | {:.0f} |\n", engine.name, tally.runs,
                           or_none(tally.possible, formatted("{}", tally.possible)),
                           tally.effective, tally.findings.size(),
                           or_none(tally.controls,
                                   formatted("{} of {}", tally.control_findings, tally.controls)),
                           took.count())
              << std::flush;
    for (const std::string& line : tally.findings) findings.push_back(engine.name + (": " + line));
  }
  if (!findings.empty()) std::cout << "\nFindings:\n\n";
  for (std::size_t i = 0; i < findings.size() && i < kMostShown; ++i)
    std::cout << "- " << findings[i] << "\n";
  return findings.empty() ? 0 : 1;
}

}  // namespace
}  // namespace vitune::faults

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0;
  if (count == 0) {
    std::cerr << "usage: vitune_soak COUNT [SEED [VERSION]]\n";
    return 2;
  }
  const bool has_seed = argc > 2 && argv[2][0] != '\0';
  const auto seed = has_seed ? static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10))
                             : std::random_device()();
  return vitune::faults::soak(count, seed, argc > 3 ? argv[3] : "unknown");
}
