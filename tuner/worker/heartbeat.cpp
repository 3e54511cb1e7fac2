// tuner/worker/heartbeat.cpp -- A worker's signs of life, sent by a thread of its own.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/heartbeat.h"

#include "core/error.h"
#include "tuner/worker/protocol.h"

namespace vitune {

Heartbeat::Heartbeat(int socket) : socket_(socket), thread_([this] { beat(); }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Heartbeat::send_phase() {
  write_frame(socket_, {static_cast<std::uint32_t>(MessageType::kPhase), id_, phase_});
}

void Heartbeat::beat() {
  std::unique_lock lock(mutex_);
  try {
    while (!ended_.wait_for(lock, kHeartbeat, [this] { return ends_; })) send_phase();
  } catch (const Error&) {
    // The parent is gone; the worker's own thread finds out as well.
  }
}

void Heartbeat::phase(std::uint64_t id, std::string name) {
  const std::lock_guard lock(mutex_);
  id_ = id;
  phase_ = std::move(name);
  send_phase();
}

void Heartbeat::send(const Frame& frame) {
  const std::lock_guard lock(mutex_);
  write_frame(socket_, frame);
}

}  // namespace vitune
