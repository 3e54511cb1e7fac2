// tests/tuner/fake_worker.cpp -- A compile worker and a bench worker that do as they are told.
//
// "compile": answers every compile with a small well-formed cubin; log=FILE collects each entry,
// fail=ENTRY does not compile; "real": the real compile worker.
// "bench key=value... ORDINAL": speaks tuner/worker/protocol.h for a GPU that is not there.
// start=... is how it begins; do=... is what it does with the jobs whose problem or config contains
// match=...; log=FILE collects a line per job; count=FILE counts the workers started; once=FILE: it
// does it only as long as there is no such file, and makes it. "silent compile" never answers,
// "dying compile at=ENTRY" ends at that job.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "core/error.h"
#include "core/frame.h"
#include "generator/compile_pool.h"
#include "generator/compile_protocol.h"
#include "tests/generator/elf_image.h"
#include "tests/patience.h"
#include "tests/tuner/fake_device.h"
#include "tuner/worker/heartbeat.h"
#include "tuner/worker/protocol.h"

namespace vitune {
namespace {

constexpr int kSocket = 3;

using Options = std::map<std::string, std::string>;

[[noreturn]] void sleep_for_ever() {
  for (;;) pause();
}

void write_raw(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(kSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

Frame frame(MessageType type, std::uint64_t id, std::string payload) {
  return {static_cast<std::uint32_t>(type), id, std::move(payload)};
}

Timing timing(double us, int samples) { return {us, us * 0.99, us * 1.01, samples}; }

TrialReply good_reply(const TrialJob& job) {
  TrialReply reply;
  const double us = test::fake_us(job.kernel.config);
  if (job.measure) {
    reply.measurement.cold = timing(us, job.effort.min_samples);
    reply.measurement.warm = timing(us * 0.9, job.effort.min_samples);
  }
  if (job.verify) reply.error = {1e-3, 1e-4, 2e-3, 2e-4};
  return reply;
}

RaceReply good_race(const RaceJob& job) {
  RaceReply reply;
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(1, 0.002);
  for (const KernelRef& kernel : job.contestants) {
    std::vector<double> cold, warm;
    for (int round = 0; round < job.rounds; ++round) {
      cold.push_back(test::fake_us(kernel.config) * noise(random));
      warm.push_back(cold.back() * 0.9);
    }
    reply.cold_us.push_back(cold);
    reply.warm_us.push_back(warm);
  }
  return reply;
}

class FakeBench {
 public:
  explicit FakeBench(Options options) : options_(std::move(options)) {}

  int run() {
    const std::string start = options_["start"];
    const int born = count_start();
    heart_.emplace(kSocket);
    if (start == "die") return 7;
    if (start == "no device") {
      const std::string words = "no CUDA-capable device is detected\n";
      if (write(STDERR_FILENO, words.data(), words.size()) < 0) return 1;
      return exit_status(ErrorCode::kNoDevice);
    }
    if (start == "silent") sleep_for_ever();
    if (start == "babble") return say_raw("good morning, this is the worker speaking"), 0;
    HelloReply hello;
    hello.pid = getpid();
    hello.device = test::fake_device();
    if (start == "other kind" && options_["ordinal"] != "0") hello.device.sm_count = 7;
    if (start == "other protocol") hello.protocol = kProtocolVersion + 1;
    say(frame(MessageType::kHello, 0, encode(hello)));
    if (start == "hello and die") return 0;
    probe_fails_ = start == "bad probe" || (start == "lost later" && born > 1);
    FrameParser parser;
    while (const auto next = read_frame(kSocket, parser)) {
      if (!serve(*next)) return 0;
    }
    return 0;
  }

 private:
  int count_start() {
    if (options_["count"].empty()) return 1;
    std::ofstream(options_["count"], std::ios::app) << "x";
    std::ifstream file(options_["count"]);
    return static_cast<int>(std::string(std::istreambuf_iterator<char>(file), {}).size());
  }

  // False: the worker is to end.
  bool serve(const Frame& job) {
    if (job.type == static_cast<std::uint32_t>(MessageType::kSetup)) {
      TrialReply reply;
      if (decode_setup(job.payload).cubin.empty()) return false;
      if (probe_fails_) reply = {TrialStatus::kCrash, "the probe gave nonsense", {}, {}, false};
      say(frame(MessageType::kResult, job.id, encode(reply)));
      return true;
    }
    phase(job.id, "verify");
    if (job.type == static_cast<std::uint32_t>(MessageType::kRace)) return serve_race(job);
    const TrialJob trial = decode_trial_job(job.payload);
    note(trial.verify ? "verify " : "measure ", trial.kernel);
    note_judge(trial);
    const std::string text = trial.problem + " " + trial.kernel.config.text();
    const bool match = text.find(options_["match"]) != std::string::npos && is_first();
    if (match && !misbehave(options_["do"], job.id, trial)) return false;
    if (!answered_) say(frame(MessageType::kResult, job.id, encode(good_reply(trial))));
    answered_ = false;
    return true;
  }

  bool serve_race(const Frame& job) {
    const RaceJob race = decode_race_job(job.payload);
    RaceReply reply = good_race(race);
    if (options_["do"] == "long calls") usleep(1'000'000);
    for (const KernelRef& kernel : race.contestants) {
      note("race ", kernel);
      const bool match = kernel.config.text().find(options_["match"]) != std::string::npos &&
                         options_["do"].starts_with("race ") && is_first();
      if (options_["do"] == "race crash" && match) raise(SIGSEGV);
      if (options_["do"] == "race stop" && match) raise(SIGSTOP);
      if (options_["do"] == "race hang" && match) sleep_for_ever();
      if (options_["do"] == "race memory" && match)
        reply = {TrialStatus::kOutOfMemory, "full", {}, {}, false, false};
    }
    say(frame(MessageType::kRaceResult, job.id, encode(reply)));
    return true;
  }

  // True if the script is to be followed, as once=... has it.
  bool is_first() {
    const std::string& marker = options_["once"];
    if (marker.empty()) return true;
    return !std::filesystem::exists(marker) && std::ofstream(marker).good();
  }

  void note_judge(const TrialJob& trial) {
    if (options_["judges"].empty()) return;
    const JudgeRef& judge = trial.judge;
    std::ofstream(options_["judges"], std::ios::app) << (judge.kernel_key == Digest{} ? "none"
                                                         : judge.cubin.empty()        ? "known"
                                                                                      : "sent")
                                                     << "\n";
  }
  void note(const char* what, const KernelRef& kernel) {
    if (options_["log"].empty()) return;
    std::ofstream(options_["log"], std::ios::app)
        << what << (kernel.cubin.empty() ? "known " : "sent ") << kernel.config.text() << "\n";
  }

  void answer(std::uint64_t id, const TrialReply& reply) {
    say(frame(MessageType::kResult, id, encode(reply)));
    answered_ = true;
  }

  bool misbehave(const std::string& what, std::uint64_t id, const TrialJob& job) {
    const std::string good = encode_frame(frame(MessageType::kResult, id, encode(good_reply(job))));
    if (what == "hang") sleep_for_ever();
    if (what == "long calls") {
      TrialReply reply = good_reply(job);
      reply.measurement.cold = timing(1e5, job.effort.min_samples);
      answer(id, reply);
    }
    if (what == "stop") raise(SIGSTOP);
    if (what == "be killed") raise(SIGKILL);
    if (what == "be ended") ::signal(SIGTERM, SIG_DFL), raise(SIGTERM);
    if (what == "segv") {
      ::signal(SIGSEGV, SIG_DFL);  // a sanitizer would make an exit status of it
      raise(SIGSEGV);
    }
    if (what == "exit 0") _exit(0);
    if (what == "exit 1") _exit(1);
    if (what == "half frame") return say_raw(good.substr(0, good.size() / 2)), false;
    if (what == "dribble") say_raw(good.substr(0, 10)), sleep_for_ever();
    if (what == "garbage") say_raw("this is no frame at all, is it?"), sleep_for_ever();
    if (what == "huge length") {
      std::string lie = good;
      lie[19] = '\x7f';
      say_raw(lie);
      sleep_for_ever();
    }
    if (what == "wrong id") answer(id + 1, good_reply(job)), sleep_for_ever();
    if (what == "not cbor") {
      say(frame(MessageType::kResult, id, "\x9f\x9f\x9f"));
      sleep_for_ever();
    }
    if (what == "wrong type") {
      say(frame(MessageType::kRaceResult, id, encode(good_race({}))));
      sleep_for_ever();
    }
    if (what == "close") heart_.reset(), close(kSocket), sleep_for_ever();
    return misreport(what, id, job);
  }

  void phase(std::uint64_t id, const char* name) { heart_->phase(id, name); }
  void say(const Frame& frame) { heart_->send(frame); }
  // Bytes that are no frame; from then on no beat comes between.
  void say_raw(std::string_view bytes) {
    heart_.reset();
    write_raw(bytes);
  }
  // Longer than a job that is to meet its deadline may take.
  void make_answers(std::uint64_t id) {
    phase(id, kReferencePhase);
    std::this_thread::sleep_for(2 * test::kBrief);
    phase(id, "verify");
  }

  // Answers in time and in form, but not what happened.
  bool misreport(const std::string& what, std::uint64_t id, const TrialJob& job) {
    if (what == "twice") answer(id, good_reply(job)), answer(id, good_reply(job));
    if (what == "late") {
      std::this_thread::sleep_for(std::chrono::seconds(10));
      answer(id, good_reply(job));
    }
    if (what == "heartbeats") {
      for (;;) phase(id, "time");
    }
    if (what == "answers") make_answers(id);
    if (what == "answers then hang") make_answers(id), sleep_for_ever();
    if (what == "answers hang") phase(id, kReferencePhase), sleep_for_ever();
    if (what == "phases in turn") {
      for (;;) {
        phase(id, kReferencePhase);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        phase(id, "verify");
      }
    }
    if (what == "chatter") {
      const std::string text(1 << 20, 'x');
      for (int i = 0; i < 100; ++i) {
        if (write(STDERR_FILENO, text.data(), text.size()) < 0) return false;
      }
    }
    if (what == "sticky") {
      answer(id, {TrialStatus::kCrash, "illegal address (700)", {}, {}, true});
      return false;
    }
    if (what == "wrong") answer(id, {TrialStatus::kWrong, "canary overwritten", {}, {}, false});
    if (what == "memory") answer(id, {TrialStatus::kOutOfMemory, "no room", {}, {}, false});
    if (what == "launch")
      answer(id, {TrialStatus::kInvalidLaunch, "too many threads", {}, {}, false});
    if (what == "pruned") answer(id, {TrialStatus::kPruned, "me?", {}, {}, false});
    if (what == "nan") {
      TrialReply reply = good_reply(job);
      reply.measurement.cold.median_us = -1;
      answer(id, reply);
    }
    if (what == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return true;
  }

  Options options_;
  std::optional<Heartbeat> heart_;
  bool probe_fails_ = false;
  bool answered_ = false;
};

// How many compiles it answers, and whether it then dies or falls silent.
int run_fake_compiler(int answers, bool dies, Options options = {}) {
  CompileHello hello;
  hello.compiler_version = "nvrtc 13.0 0123456789ab";
  write_frame(kSocket, {kCompileHello, 0, encode(hello)});
  FrameParser parser;
  while (const auto next = read_frame(kSocket, parser)) {
    if (answers-- <= 0) continue;
    const auto job = decode_job(next->payload);
    if (!job) return 1;
    if (dies && job->entry == options["at"]) return 0;
    if (!options["log"].empty()) std::ofstream(options["log"], std::ios::app) << job->entry << "\n";
    CompileResult result;
    result.status = job->entry == options["fail"] ? CompileStatus::kError : CompileStatus::kOk;
    result.facts = {64, 0, 0, 1.5};
    if (result.status == CompileStatus::kOk) result.cubin = test::elf_image();
    write_frame(kSocket, {kCompileReply, next->id, encode(result)});
  }
  return 0;
}

int run(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "real") return run_compile_worker();
  Options options;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t at = argument.find('=');
    if (at != std::string::npos) options[argument.substr(0, at)] = argument.substr(at + 1);
  }
  constexpr int kAlways = std::numeric_limits<int>::max();
  if (role == "compile") return run_fake_compiler(kAlways, false, options);
  if (role == "silent compile") return run_fake_compiler(0, false);
  if (role == "dying compile") return run_fake_compiler(kAlways, true, options);
  options["ordinal"] = argv[argc - 1];
  return FakeBench(options).run();
}

}  // namespace
}  // namespace vitune

int main(int argc, char** argv) {
  try {
    return vitune::run(argc, argv);
  } catch (const std::exception&) {
    return 1;
  }
}
