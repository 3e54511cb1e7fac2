// tuner/worker/heartbeat.h -- A worker's signs of life, sent by a thread of its own.
//
// A job may keep the worker's own thread in one call for as long as its kernel runs. The beats tell
// the parent that the process runs meanwhile: one that is stopped, frozen or swapped out sends
// none, and the time until it goes on is charged to nobody.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "core/frame.h"

namespace vitune {

// From one beat to the next.
inline constexpr std::chrono::milliseconds kHeartbeat{100};

class Heartbeat {
 public:
  // Beats on `socket` from now on, until it is destroyed or the parent is gone.
  explicit Heartbeat(int socket);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Says what job `id` is at, now and with each beat from now on.
  void phase(std::uint64_t id, std::string name);
  // Sends another frame; no beat falls into it. Throws Error(kFailure) if the parent is gone.
  void send(const Frame& frame);

 private:
  void beat();
  void send_phase();

  int socket_;
  std::mutex mutex_;  // of the socket's writing end and all below
  std::condition_variable ended_;
  bool ends_ = false;
  std::uint64_t id_ = 0;
  std::string phase_ = "start";
  std::thread thread_;
};

}  // namespace vitune
