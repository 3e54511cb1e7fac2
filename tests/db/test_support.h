// tests/db/test_support.h -- Sample rows, temporary directories and raw access for the database
// tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "db/binary_table.h"
#include "db/sqlite.h"
#include "db/store.h"
#include "tests/devices.h"
#include "tests/ended_process.h"

namespace vitune::test {

namespace fs = std::filesystem;

// A directory of this test alone (mode 0700), removed with all it holds. In memory where that is
// possible: the tests commit thousands of times, and what they show does not depend on the disk.
class TempDir {
 public:
  TempDir() {
    const fs::path base = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : fs::temp_directory_path();
    std::string name = (base / "vitune_db_test.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + name);
    path_ = fs::canonical(name);
  }
  ~TempDir() {
    std::error_code ignored;
    for (const auto& entry : fs::recursive_directory_iterator(path_, ignored)) {
      if (entry.is_directory(ignored)) fs::permissions(entry, fs::perms::owner_all, ignored);
    }
    fs::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline std::string read_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Runs `body` in a forked child and gives its exit status; 111 if it threw, 128 + n for signal n.
inline int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 111;
    try {
      status = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline DeviceInfo sample_device(int sm_count = 132) {
  DeviceInfo device = testing_support::h200_device("Sample GPU");
  device.sm_count = sm_count;
  return device;
}

inline ProblemKey sample_problem(int tokens = 197) {
  const std::string n = std::to_string(tokens);
  return {"attention", "attention bf16 b=32 h=12 nq=" + n + " nk=" + n + " d=64 layout=packed"};
}

inline Config sample_config(std::int64_t n) { return {{"kBlockM", 64}, {"kBlockN", 8 * n}}; }

inline Digest sample_key(std::int64_t n) { return sha256("kernel " + std::to_string(n)); }

inline Measurement sample_measurement(double us) {
  return {{us, us - 0.25, us + 0.125, 40}, {us * 0.7, us * 0.69, us * 0.71, 60}, true};
}

inline Trial sample_trial(std::int64_t n) {
  Trial trial;
  trial.config = sample_config(n);
  trial.kernel_key = sample_key(n);
  trial.compile = {168, 0, 98304, 143.5};
  trial.error = {0.0071, 0.00023, 0.0156, 0.00046};
  trial.measurement = sample_measurement(10.0 + static_cast<double>(n));
  return trial;
}

inline Winner sample_winner(std::int64_t n, Objective objective = Objective::kCold) {
  Winner winner;
  winner.config = sample_config(n);
  winner.kernel_key = sample_key(n);
  winner.objective = objective;
  winner.measurement = sample_measurement(10.0 + static_cast<double>(n));
  winner.error = {0.0071, 0.00023, 0.0156, 0.00046};
  winner.runner_up = sample_config(n + 1);
  winner.lead_percent = 1.5;
  winner.lead_low_percent = -0.1;
  winner.lead_high_percent = 3.25;
  winner.default_us = 21.5;
  winner.trials = 432;
  winner.driver_version = 13000;
  winner.compiler_version = "13.0";
  winner.tuned_at = "2026-01-31T10:20:30Z";
  return winner;
}

// An image that does not compress, so that it takes several pages.
inline Binary sample_binary(std::int64_t n, std::size_t size = 9000) {
  Binary binary{sample_key(n),         "sm_90", "13.0", "vitune_attention_forward",
                {168, 8, 98304, 99.5}, {}};
  std::mt19937 random(static_cast<unsigned>(n));
  for (std::size_t i = 0; i < size; ++i)
    binary.image.push_back(static_cast<std::byte>(random() & 255));
  return binary;
}

inline BlockEntry sample_block(std::int64_t n) {
  return {sample_key(n), sample_device().key(), 13000, TrialStatus::kWrong,
          "max error 0.5 is above its bound 0.0156"};
}

// The winner as it is once it was promoted with the binary of its kernel.
inline Winner with_image(Winner winner, std::int64_t n, std::size_t size = 9000) {
  winner.image_digest = image_digest(sample_binary(n, size).image);
  return winner;
}

// Something in every table: 2 devices, 3 problems, 60 trials, 6 winners, 3 binaries, ...
inline void fill(Store& store) {
  std::vector<Trial> trials;
  for (int n = 0; n < 20; ++n) trials.push_back(sample_trial(n));
  trials[7].status = TrialStatus::kWrong;
  trials[7].reason = "max error 0.5 is above its bound 0.0156";
  for (const int tokens : {197, 257, 577}) {
    store.put_trials(sample_device(), sample_problem(tokens), trials);
    // How far a search went is kept of the sample problem's.
    store.promote(
        sample_device(), sample_problem(tokens), sample_winner(tokens), nullptr,
        tokens == 197 ? std::optional(SearchRecord{sample_key(197), 90, true}) : std::nullopt);
    const Binary binary = sample_binary(tokens);
    store.promote(sample_device(60), sample_problem(tokens), sample_winner(tokens), &binary);
  }
  store.block(sample_block(1));
  store.begin_attempt(sample_device(), sample_problem(), sample_config(99), ended_process());
  store.add_requests({{"attention", sample_problem(1025).text, 17, 123.5}});
}

}  // namespace vitune::test
