// tests/faults/power_cuts.cpp -- Power cuts at any call of each operation, on a simulated disk.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>

#include "tests/faults/engines.h"
#include "tests/faults/simulated_disk.h"

namespace vitune::faults {
namespace {

namespace fs = std::filesystem;

// Cuts after the last call, where all that was reported must be there, are so many of all.
constexpr std::size_t kOneAtTheEndOf = 8;

// An operation that was run once, and the folder in which the disks' contents are looked at.
class CutOperation {
 public:
  explicit CutOperation(const Operation& operation) : operation_(operation), run_(operation) {
    calls_ = run_.record([&] {
      certain_ = std::make_unique<SimulatedDisk>(run_.folder(), true);
      unsynced_ = std::make_unique<SimulatedDisk>(run_.folder(), false);
    });
  }

  const std::string& name() const { return operation_.name(); }
  std::size_t calls() const { return calls_.size(); }

  // The faults after each of these cuts (each behind so many calls, in ascending order).
  template <typename Found>
  void cut(const std::vector<std::size_t>& cuts, bool syncs, std::mt19937& random, Found&& found) {
    SimulatedDisk disk = syncs ? *certain_ : *unsynced_;
    std::size_t done = 0;
    for (const std::size_t cut : cuts) {
      for (; done < cut; ++done) disk.apply(calls_[done]);
      write(disk.after_power_loss(random));
      const bool finished = cut == calls_.size();
      found(cut, operation_.check_files(run_.folder(), finished));
    }
  }

 private:
  // Inputs are not written: nothing looks at them.
  void write(const SimulatedDisk::Files& files) {
    for (const char* name : {"db", "out"}) {
      fs::remove_all(run_.folder() / name);
      fs::create_directory(run_.folder() / name);
    }
    const fs::path inputs = run_.folder() / "in";
    for (const auto& [path, bytes] : files) {
      if (path.starts_with(inputs.string())) continue;
      test::write_bytes(path, bytes);
      fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    }
  }

  const Operation& operation_;
  SpoiltRun run_;
  std::unique_ptr<SimulatedDisk> certain_, unsynced_;
  std::vector<RecordedCall> calls_;
};

std::vector<std::size_t> drawn_cuts(std::size_t count, std::size_t calls, std::mt19937& random) {
  std::vector<std::size_t> cuts;
  for (std::size_t i = 0; i < count; ++i)
    cuts.push_back(i % kOneAtTheEndOf == 0 ? calls : random() % calls);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

}  // namespace

Tally cut_power(const Work& work) {
  constexpr std::size_t kOneControlIn = 50;
  Tally tally;
  std::mt19937 random(work.seed + static_cast<std::uint32_t>(work.share) * 7919U);
  const std::size_t share = work.count / work.shares / operations().size() + 1;
  for (const Operation& operation : operations()) {
    CutOperation recorded(operation);
    const auto cuts = drawn_cuts(share, recorded.calls(), random);
    recorded.cut(cuts, true, random, [&](std::size_t cut, const std::vector<std::string>& wrong) {
      ++tally.runs;
      ++tally.effective;
      for (const std::string& line : wrong)
        tally.findings.push_back(operation.name() + ", cut after " + std::to_string(cut) + " of " +
                                 std::to_string(recorded.calls()) + " calls: " + line);
    });
    const auto controls = drawn_cuts(share / kOneControlIn + 10, recorded.calls(), random);
    recorded.cut(controls, false, random, [&](std::size_t, const std::vector<std::string>& wrong) {
      ++tally.controls;
      tally.control_findings += !wrong.empty();
    });
  }
  return tally;
}

}  // namespace vitune::faults
