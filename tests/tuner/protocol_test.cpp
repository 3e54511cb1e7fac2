// tests/tuner/protocol_test.cpp -- Messages between tuner and bench worker: round trips and lies.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/protocol.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/devices.h"
#include "tuner/worker/cbor.h"

namespace vitune {
namespace {

DeviceInfo some_device() {
  DeviceInfo device = testing_support::h200_device();
  device.uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef";
  return device;
}

KernelRef some_kernel(std::size_t bytes) {
  KernelRef kernel;
  kernel.config = {{"kBlockN", 104}, {"kWarps", 4}};
  kernel.kernel_key = sha256("a kernel");
  for (std::size_t i = 0; i < bytes; ++i) kernel.cubin.push_back(std::byte(i * 7));
  return kernel;
}

TrialReply some_reply() {
  TrialReply reply;
  reply.status = TrialStatus::kWrong;
  reply.reason = "the kernel left 3 of 100 output elements unwritten";
  reply.error = {0.5, 0.25, 0.01, 0.001};
  reply.measurement.cold = {20.5, 20.25, 21.0, 15};
  reply.measurement.warm = {14.1, 14.0, 14.3, 3};
  reply.measurement.low_confidence = true;
  reply.context_lost = true;
  return reply;
}

TEST(Protocol, AHelloComesBackAsItWas) {
  const HelloReply hello = {kProtocolVersion, 4711, some_device()};
  const HelloReply back = decode_hello(encode(hello));
  EXPECT_EQ(back.protocol, hello.protocol);
  EXPECT_EQ(back.pid, 4711);
  EXPECT_EQ(back.device, hello.device);
}

TEST(Protocol, ASetupComesBackAsItWas) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{300000}}) {
    SetupJob job;
    for (std::size_t i = 0; i < size; ++i) job.cubin.push_back(std::byte(i % 251));
    EXPECT_EQ(decode_setup(encode(job)).cubin, job.cubin);
  }
}

TEST(Protocol, ATrialJobComesBackAsItWas) {
  TrialJob job;
  job.problem = "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed";
  job.kernel = some_kernel(1000);
  job.measure = false;
  job.effort = {7, 90, 0.0125, 9};
  job.judge = {sha256("a judge"), {std::byte{3}, std::byte{0}}};
  const TrialJob back = decode_trial_job(encode(job));
  EXPECT_EQ(back.problem, job.problem);
  EXPECT_EQ(back.kernel.config, job.kernel.config);
  EXPECT_EQ(back.kernel.kernel_key, job.kernel.kernel_key);
  EXPECT_EQ(back.kernel.cubin, job.kernel.cubin);
  EXPECT_TRUE(back.verify);
  EXPECT_FALSE(back.measure);
  EXPECT_EQ(back.effort.min_samples, 7);
  EXPECT_EQ(back.effort.max_samples, 90);
  EXPECT_EQ(back.effort.target_noise, 0.0125);
  EXPECT_EQ(back.effort.warm_replays, 9);
  EXPECT_EQ(back.judge.kernel_key, job.judge.kernel_key);
  EXPECT_EQ(back.judge.cubin, job.judge.cubin);
}

TEST(Protocol, ATrialReplyComesBackAsItWas) {
  const TrialReply reply = some_reply();
  const TrialReply back = decode_trial_reply(encode(reply));
  EXPECT_EQ(back.status, reply.status);
  EXPECT_EQ(back.reason, reply.reason);
  EXPECT_EQ(back.error, reply.error);
  EXPECT_EQ(back.measurement, reply.measurement);
  EXPECT_EQ(back.context_lost, reply.context_lost);
}

TEST(Protocol, ARaceJobComesBackAsItWas) {
  RaceJob job;
  job.problem = "attention fp16 b=1 h=1 nq=1 nk=1 d=8 layout=bnhd";
  job.contestants = {some_kernel(10), some_kernel(0)};
  job.rounds = 45;
  job.place = 3;
  const RaceJob back = decode_race_job(encode(job));
  EXPECT_EQ(back.problem, job.problem);
  ASSERT_EQ(back.contestants.size(), 2u);
  EXPECT_EQ(back.contestants[0].cubin, job.contestants[0].cubin);
  EXPECT_TRUE(back.contestants[1].cubin.empty());
  EXPECT_EQ(back.rounds, 45);
  EXPECT_EQ(back.place, 3);
}

TEST(Protocol, ARaceReplyComesBackAsItWas) {
  RaceReply reply;
  reply.cold_us = {{20.5, 20.6}, {21, 22}};
  reply.warm_us = {{14.5, 14.6}, {15, 16.25}};
  reply.low_confidence = true;
  const RaceReply back = decode_race_reply(encode(reply));
  EXPECT_EQ(back.status, TrialStatus::kOk);
  EXPECT_EQ(back.cold_us, reply.cold_us);
  EXPECT_EQ(back.warm_us, reply.warm_us);
  EXPECT_TRUE(back.low_confidence);
  EXPECT_FALSE(back.context_lost);
}

TEST(Protocol, ProposalsComeBackAsTheyWere) {
  EXPECT_EQ(decode_propose_job(encode(ProposeJob{"linear bf16 m=1 n=8 k=8"})).problem,
            "linear bf16 m=1 n=8 k=8");
  ProposeReply reply;
  reply.configs = {Config{{"kLibrary", 130101}, {"kAlgorithm5", -81985529216486896}}, Config()};
  reply.reason = "none";
  const ProposeReply back = decode_propose_reply(encode(reply));
  EXPECT_EQ(back.status, TrialStatus::kOk);
  EXPECT_EQ(back.configs, reply.configs);
  EXPECT_EQ(back.reason, "none");
  EXPECT_FALSE(back.context_lost);
  reply.configs.assign(65, Config{{"kA", 1}});
  EXPECT_THROW(decode_propose_reply(encode(reply)), Error) << "a flood";
}

struct Codec {
  const char* name;
  std::string good;
  std::function<void(std::string_view)> decode;
};

std::vector<Codec> codecs() {
  TrialJob trial;
  trial.problem = "p";
  trial.kernel = some_kernel(20);
  RaceJob job;
  job.contestants = {some_kernel(5)};
  RaceReply race;
  race.cold_us = race.warm_us = {{1.5, 2.5}};
  ProposeReply proposals;
  proposals.configs = {Config{{"kA", 1}}};
  return {
      {"hello", encode(HelloReply{1, 2, some_device()}), [](auto b) { decode_hello(b); }},
      {"setup", encode(SetupJob{{std::byte{1}}}), [](auto b) { decode_setup(b); }},
      {"trial job", encode(trial), [](auto b) { decode_trial_job(b); }},
      {"trial reply", encode(some_reply()), [](auto b) { decode_trial_reply(b); }},
      {"race job", encode(job), [](auto b) { decode_race_job(b); }},
      {"race reply", encode(race), [](auto b) { decode_race_reply(b); }},
      {"propose job", encode(ProposeJob{"p"}), [](auto b) { decode_propose_job(b); }},
      {"propose reply", encode(proposals), [](auto b) { decode_propose_reply(b); }},
  };
}

TEST(Protocol, EveryTruncationIsRefused) {
  for (const Codec& codec : codecs()) {
    codec.decode(codec.good);
    for (std::size_t size = 0; size < codec.good.size(); ++size) {
      EXPECT_THROW(codec.decode(std::string_view(codec.good).substr(0, size)), Error)
          << codec.name << " cut to " << size;
    }
    EXPECT_THROW(codec.decode(codec.good + "x"), Error) << codec.name << " with a byte too many";
  }
}

TEST(Protocol, RandomDamageNeverDoesWorseThanAnError) {
  constexpr int kRounds = 4000;
  std::mt19937 random(7);
  int refused = 0;
  for (const Codec& codec : codecs()) {
    for (int round = 0; round < kRounds; ++round) {
      std::string bytes = codec.good;
      const unsigned flips = 1 + random() % 4;
      for (unsigned i = 0; i < flips; ++i)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      try {
        codec.decode(bytes);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kFailure) << codec.name;
        ++refused;
      }
    }
  }
  // Damage to a figure or a text goes unnoticed here (frames have a checksum); most is noticed.
  EXPECT_GT(refused, 6 * kRounds / 4);
}

TEST(Protocol, MessagesOfAnotherKindAreRefused) {
  const std::vector<Codec> all = codecs();
  for (const Codec& codec : all) {
    for (const Codec& other : all) {
      if (&codec == &other) continue;
      EXPECT_THROW(codec.decode(other.good), Error) << other.name << " read as " << codec.name;
    }
  }
}

TEST(Protocol, LiesInTheStructureAreRefused) {
  const std::string deep = std::string(100000, '\x81') + '\x00';
  const std::vector<std::pair<const char*, std::string>> lies = {
      {"an array of 2^60 items", "\x9b\x10" + std::string(7, '\0')},
      {"a map of 2^60 entries", "\xbb\x10" + std::string(7, '\0')},
      {"a byte string of 2^62 bytes", "\x5b\x40" + std::string(7, '\0')},
      {"nested 100,000 deep", deep},
      {"an indefinite array", "\x9f\xff"},
      {"a tag", std::string("\xc1\x00", 2)},
      {"an unknown simple value", "\xf8\x20"},
      {"nothing", ""},
      {"a reserved length", "\x1c"},
  };
  for (const auto& [name, bytes] : lies) EXPECT_THROW(parse_cbor(bytes), Error) << name;
}

TEST(Protocol, FieldsOutOfRangeAreRefused) {
  using nlohmann::json;
  const json good = json::from_cbor(encode(some_reply()));
  const std::vector<std::pair<const char*, std::function<void(json&)>>> cases = {
      {"an unknown status", [](json& m) { m["status"] = "splendid"; }},
      {"a status that is a number", [](json& m) { m["status"] = 3; }},
      {"a NaN",
       [](json& m) { m["error"]["max_error"] = std::numeric_limits<double>::quiet_NaN(); }},
      {"an infinity",
       [](json& m) { m["cold"]["median_us"] = std::numeric_limits<double>::infinity(); }},
      {"a negative time", [](json& m) { m["cold"]["median_us"] = -1.0; }},
      {"a sample count beyond int", [](json& m) { m["cold"]["samples"] = 1ull << 40; }},
      {"a sample count of 2^64 - 1", [](json& m) { m["cold"]["samples"] = ~0ull; }},
      {"a missing field", [](json& m) { m.erase("reason"); }},
      {"a reason of a megabyte", [](json& m) { m["reason"] = std::string(1 << 20, 'x'); }},
      {"a flag that is a number", [](json& m) { m["context_lost"] = 1; }},
      {"a list for a map", [](json& m) { m["error"] = json::array(); }},
  };
  for (const auto& [name, change] : cases) {
    json message = good;
    change(message);
    std::string bytes;
    json::to_cbor(message, bytes);
    EXPECT_THROW(decode_trial_reply(bytes), Error) << name;
  }
}

}  // namespace
}  // namespace vitune
