// tuner/worker/protocol.h -- What the tuner and a bench worker say to each other.
//
// Each message is one frame (core/frame.h) whose payload is CBOR (RFC 8949); replies are data that
// the parent parses as hostile. A job carries an id and each reply echoes it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/device_info.h"
#include "core/digest.h"
#include "db/records.h"

namespace vitune {

enum class MessageType : std::uint32_t {
  kHello = 1,   // worker -> parent, once: HelloReply
  kSetup = 2,   // parent -> worker, once: SetupJob; answered by kResult with a TrialReply
  kTrial = 3,   // parent -> worker: TrialJob
  kRace = 4,    // parent -> worker: RaceJob
  kPhase = 5,   // worker -> parent: a sign of life (Heartbeat), the payload names the phase
  kResult = 6,  // worker -> parent: TrialReply
  kRaceResult = 7,
  kPropose = 8,    // parent -> worker: ProposeJob
  kProposals = 9,  // worker -> parent: ProposeReply
};

inline constexpr int kProtocolVersion = 7;

// The phase in which a worker makes the judge's right answers, once per problem and worker. No
// candidate runs meanwhile and none is to blame for how long it takes. The next phase ends it.
inline constexpr const char* kReferencePhase = "reference";

struct HelloReply {
  int protocol = kProtocolVersion;
  int pid = 0;
  DeviceInfo device;
};

// The support kernels (fill, compare, flush, probe) compiled for the device. The worker runs the
// probe: a known-good kernel whose failure means that the device is at fault.
struct SetupJob {
  std::vector<std::byte> cubin;
};

// How long to measure: at least min_samples cold calls, then until the relative half width of the
// median's interval is below target_noise, at most max_samples.
struct MeasureEffort {
  int min_samples = 5;
  int max_samples = 10;
  double target_noise = 0.05;
  int warm_replays = 3;
};

struct KernelRef {
  Config config;
  Digest kernel_key;
  // Empty where the worker was sent this kernel key before, and where the config has no kernels.
  std::vector<std::byte> cubin;
};

// Who knows the right answers of an operator's problems: its judge_entries(), compiled.
struct JudgeRef {
  Digest kernel_key;
  // Empty where the worker was sent this key before, and in a trial that verifies nothing.
  std::vector<std::byte> cubin;
};

struct TrialJob {
  std::string problem;  // canonical text
  KernelRef kernel;
  bool verify = true;
  bool measure = true;
  MeasureEffort effort;
  JudgeRef judge = {};
};

struct TrialReply {
  TrialStatus status = TrialStatus::kOk;
  std::string reason;
  ErrorFigures error;
  Measurement measurement;
  bool context_lost = false;  // a sticky error: the worker exits after this reply
};

// Interleaved, paired measurement of several verified kernels on one problem: in each round every
// contestant is timed once, in a fresh random order, and next to an anchor that notices clock
// changes.
struct RaceJob {
  std::string problem;
  std::vector<KernelRef> contestants;
  int rounds = 30;
  // Of the tensors, from 0: each number is memory of its own, as long as there is enough.
  int place = 0;
};

struct RaceReply {
  TrialStatus status = TrialStatus::kOk;
  std::string reason;
  // [contestant][round] microseconds; rounds in which the anchor moved were measured again.
  std::vector<std::vector<double>> cold_us;
  std::vector<std::vector<double>> warm_us;
  bool low_confidence = false;
  bool context_lost = false;
};

// Asks for the configs that a library proposes for a problem: Operator::proposals().
struct ProposeJob {
  std::string problem;  // canonical text
};

struct ProposeReply {
  TrialStatus status = TrialStatus::kOk;
  std::string reason;
  std::vector<Config> configs;
  bool context_lost = false;
};

std::string encode(const HelloReply& message);
std::string encode(const SetupJob& message);
std::string encode(const TrialJob& message);
std::string encode(const TrialReply& message);
std::string encode(const RaceJob& message);
std::string encode(const RaceReply& message);
std::string encode(const ProposeJob& message);
std::string encode(const ProposeReply& message);

// Each throws Error(kFailure) for bytes that are not such a message.
HelloReply decode_hello(std::string_view bytes);
SetupJob decode_setup(std::string_view bytes);
TrialJob decode_trial_job(std::string_view bytes);
TrialReply decode_trial_reply(std::string_view bytes);
RaceJob decode_race_job(std::string_view bytes);
RaceReply decode_race_reply(std::string_view bytes);
ProposeJob decode_propose_job(std::string_view bytes);
ProposeReply decode_propose_reply(std::string_view bytes);

}  // namespace vitune
