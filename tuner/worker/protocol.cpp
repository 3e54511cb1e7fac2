// tuner/worker/protocol.cpp -- Messages as CBOR maps; what arrives is taken apart field by field,
// in range.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/worker/protocol.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/device_facts.h"
#include "core/error.h"
#include "tuner/worker/cbor.h"

namespace vitune {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxText = 1 << 16;
constexpr std::size_t kMaxContestants = 256;
constexpr std::size_t kMaxProposals = 64;
constexpr std::int64_t kMaxRounds = 100000;
constexpr std::int64_t kMostPlaces = 64;
constexpr std::int64_t kInt = std::numeric_limits<int>::max();
constexpr std::int64_t kInt64 = std::numeric_limits<std::int64_t>::max();

std::string pack(const json& message) {
  std::string bytes;
  json::to_cbor(message, bytes);
  return bytes;
}

// A map of a message; every getter throws Error(kFailure) for a field that is absent or not as
// expected.
class Fields {
 public:
  explicit Fields(json value) : value_(std::move(value)) {
    if (!value_.is_object()) throw Error(ErrorCode::kFailure, "a message is not a CBOR map");
  }

  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) const {
    const json& field = at(name);
    if (!field.is_number_integer()) fail(name, "an integer");
    const bool too_large = field.is_number_unsigned() &&
                           field.get<std::uint64_t>() > static_cast<std::uint64_t>(kInt64);
    const std::int64_t value = too_large ? 0 : field.get<std::int64_t>();
    if (too_large || value < least || value > most) {
      fail(name, "from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
  }
  int small(const char* name, int least, std::int64_t most) const {
    return static_cast<int>(integer(name, least, most));
  }
  double number(const char* name) const { return number(at(name), name); }
  static double number(const json& field, const char* name) {
    if (!field.is_number()) fail(name, "a number");
    const double value = field.get<double>();
    if (!std::isfinite(value) || value < 0) fail(name, "finite and not negative");
    return value;
  }
  bool flag(const char* name) const {
    const json& field = at(name);
    if (!field.is_boolean()) fail(name, "a bool");
    return field.get<bool>();
  }
  std::string text(const char* name) const {
    const json& field = at(name);
    if (!field.is_string() || field.get_ref<const std::string&>().size() > kMaxText) {
      fail(name, "a text of at most 65536 bytes");
    }
    return field.get<std::string>();
  }
  std::vector<std::byte> bytes(const char* name) const {
    const json& field = at(name);
    if (!field.is_binary()) fail(name, "bytes");
    const auto& binary = field.get_binary();
    std::vector<std::byte> result(binary.size());
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = std::byte{binary[i]};
    return result;
  }
  Fields map(const char* name) const { return Fields(at(name)); }
  const json& list(const char* name, std::size_t most) const {
    const json& field = at(name);
    if (!field.is_array() || field.size() > most) {
      fail(name, "a list of at most " + std::to_string(most));
    }
    return field;
  }
  [[noreturn]] static void fail(const char* name, const std::string& expected) {
    throw Error(ErrorCode::kFailure,
                "field '" + std::string(name) + "' of a message is not " + expected);
  }

 private:
  const json& at(const char* name) const {
    const auto found = value_.find(name);
    if (found == value_.end()) fail(name, "there");
    return *found;
  }
  json value_;
};

Fields parse(std::string_view bytes) { return Fields(parse_cbor(bytes)); }

json binary(const std::vector<std::byte>& bytes) {
  json::binary_t::container_type raw(bytes.size());
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = std::to_integer<std::uint8_t>(bytes[i]);
  return json::binary(std::move(raw));
}

json pack_status(TrialStatus status) { return trial_status_name(status); }

TrialStatus status_of(const Fields& fields) {
  const auto status = trial_status_from_name(fields.text("status"));
  if (!status) Fields::fail("status", "the name of a trial status");
  return *status;
}

json pack_device(const DeviceInfo& device) {
  json packed = {{"name", device.name}, {"uuid", device.uuid}};
  for (const DeviceFact& fact : device_facts()) packed[fact.name] = fact.get(device);
  return packed;
}

DeviceInfo unpack_device(const Fields& fields) {
  DeviceInfo device;
  device.name = fields.text("name");
  device.uuid = fields.text("uuid");
  for (const DeviceFact& fact : device_facts()) {
    fact.set(device, fields.integer(fact.name.c_str(), 0, fact.most));
  }
  return device;
}

json pack_effort(const MeasureEffort& e) {
  return {{"min_samples", e.min_samples},
          {"max_samples", e.max_samples},
          {"target_noise", e.target_noise},
          {"warm_replays", e.warm_replays}};
}

MeasureEffort unpack_effort(const Fields& f) {
  MeasureEffort e;
  e.min_samples = f.small("min_samples", 1, kMaxRounds);
  e.max_samples = f.small("max_samples", 1, kMaxRounds);
  e.target_noise = f.number("target_noise");
  e.warm_replays = f.small("warm_replays", 1, kMaxRounds);
  return e;
}

json pack_kernel(const KernelRef& k) {
  return {
      {"config", k.config.text()}, {"kernel_key", k.kernel_key.hex()}, {"cubin", binary(k.cubin)}};
}

Config unpack_config(const Fields& f) {
  try {
    return Config::parse(f.text("config"));
  } catch (const Error& error) {
    Fields::fail("config", std::string("a config: ") + error.what());
  }
}

Digest unpack_key(const Fields& f) {
  const auto key = Digest::from_hex(f.text("kernel_key"));
  if (!key) Fields::fail("kernel_key", "a digest");
  return *key;
}

KernelRef unpack_kernel(const Fields& f) {
  KernelRef k;
  k.config = unpack_config(f);
  k.kernel_key = unpack_key(f);
  k.cubin = f.bytes("cubin");
  return k;
}

JudgeRef unpack_judge(const Fields& f) { return {unpack_key(f), f.bytes("cubin")}; }

json pack_timing(const Timing& t) {
  return {{"median_us", t.median_us},
          {"low_us", t.low_us},
          {"high_us", t.high_us},
          {"samples", t.samples}};
}

Timing unpack_timing(const Fields& f) {
  return {f.number("median_us"), f.number("low_us"), f.number("high_us"),
          f.small("samples", 0, kInt)};
}

json pack_error(const ErrorFigures& e) {
  return {{"max_error", e.max_error},
          {"rms_error", e.rms_error},
          {"max_bound", e.max_bound},
          {"rms_bound", e.rms_bound}};
}

ErrorFigures unpack_error(const Fields& f) {
  return {f.number("max_error"), f.number("rms_error"), f.number("max_bound"),
          f.number("rms_bound")};
}

std::vector<std::vector<double>> unpack_samples(const Fields& f, const char* name) {
  std::vector<std::vector<double>> result;
  for (const json& list : f.list(name, kMaxContestants)) {
    if (!list.is_array() || list.size() > static_cast<std::size_t>(kMaxRounds)) {
      Fields::fail(name, "a list of lists");
    }
    std::vector<double>& samples = result.emplace_back();
    for (const json& value : list) samples.push_back(Fields::number(value, name));
  }
  return result;
}

}  // namespace

std::string encode(const HelloReply& m) {
  return pack({{"protocol", m.protocol}, {"pid", m.pid}, {"device", pack_device(m.device)}});
}

HelloReply decode_hello(std::string_view bytes) {
  const Fields f = parse(bytes);
  return {f.small("protocol", 0, kInt), f.small("pid", 0, kInt), unpack_device(f.map("device"))};
}

std::string encode(const SetupJob& m) { return pack({{"cubin", binary(m.cubin)}}); }

SetupJob decode_setup(std::string_view bytes) { return {parse(bytes).bytes("cubin")}; }

std::string encode(const TrialJob& m) {
  return pack(
      {{"problem", m.problem},
       {"kernel", pack_kernel(m.kernel)},
       {"verify", m.verify},
       {"measure", m.measure},
       {"effort", pack_effort(m.effort)},
       {"judge", {{"kernel_key", m.judge.kernel_key.hex()}, {"cubin", binary(m.judge.cubin)}}}});
}

TrialJob decode_trial_job(std::string_view bytes) {
  const Fields f = parse(bytes);
  return {f.text("problem"), unpack_kernel(f.map("kernel")), f.flag("verify"),
          f.flag("measure"), unpack_effort(f.map("effort")), unpack_judge(f.map("judge"))};
}

std::string encode(const TrialReply& m) {
  return pack({{"status", pack_status(m.status)},
               {"reason", m.reason},
               {"error", pack_error(m.error)},
               {"cold", pack_timing(m.measurement.cold)},
               {"warm", pack_timing(m.measurement.warm)},
               {"low_confidence", m.measurement.low_confidence},
               {"context_lost", m.context_lost}});
}

TrialReply decode_trial_reply(std::string_view bytes) {
  const Fields f = parse(bytes);
  TrialReply m;
  m.status = status_of(f);
  m.reason = f.text("reason");
  m.error = unpack_error(f.map("error"));
  m.measurement.cold = unpack_timing(f.map("cold"));
  m.measurement.warm = unpack_timing(f.map("warm"));
  m.measurement.low_confidence = f.flag("low_confidence");
  m.context_lost = f.flag("context_lost");
  return m;
}

std::string encode(const RaceJob& m) {
  json contestants = json::array();
  for (const KernelRef& kernel : m.contestants) contestants.push_back(pack_kernel(kernel));
  return pack({{"problem", m.problem},
               {"contestants", std::move(contestants)},
               {"rounds", m.rounds},
               {"place", m.place}});
}

RaceJob decode_race_job(std::string_view bytes) {
  const Fields f = parse(bytes);
  RaceJob m;
  m.problem = f.text("problem");
  for (const json& kernel : f.list("contestants", kMaxContestants)) {
    m.contestants.push_back(unpack_kernel(Fields(kernel)));
  }
  m.rounds = f.small("rounds", 1, kMaxRounds);
  m.place = f.small("place", 0, kMostPlaces - 1);
  return m;
}

std::string encode(const RaceReply& m) {
  return pack({{"status", pack_status(m.status)},
               {"reason", m.reason},
               {"cold_us", m.cold_us},
               {"warm_us", m.warm_us},
               {"low_confidence", m.low_confidence},
               {"context_lost", m.context_lost}});
}

RaceReply decode_race_reply(std::string_view bytes) {
  const Fields f = parse(bytes);
  RaceReply m;
  m.status = status_of(f);
  m.reason = f.text("reason");
  m.cold_us = unpack_samples(f, "cold_us");
  m.warm_us = unpack_samples(f, "warm_us");
  m.low_confidence = f.flag("low_confidence");
  m.context_lost = f.flag("context_lost");
  return m;
}

std::string encode(const ProposeJob& m) { return pack({{"proposals_for", m.problem}}); }

ProposeJob decode_propose_job(std::string_view bytes) {
  return {parse(bytes).text("proposals_for")};
}

std::string encode(const ProposeReply& m) {
  json configs = json::array();
  for (const Config& config : m.configs) configs.push_back({{"config", config.text()}});
  return pack({{"status", pack_status(m.status)},
               {"reason", m.reason},
               {"configs", std::move(configs)},
               {"context_lost", m.context_lost}});
}

ProposeReply decode_propose_reply(std::string_view bytes) {
  const Fields f = parse(bytes);
  ProposeReply m;
  m.status = status_of(f);
  m.reason = f.text("reason");
  for (const json& config : f.list("configs", kMaxProposals)) {
    m.configs.push_back(unpack_config(Fields(config)));
  }
  m.context_lost = f.flag("context_lost");
  return m;
}

}  // namespace vitune
