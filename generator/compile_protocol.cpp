// generator/compile_protocol.cpp -- Messages to and from flat CBOR maps.
// SPDX-License-Identifier: Apache-2.0
#include "generator/compile_protocol.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace vitune {
namespace {

using nlohmann::json;

// Builds one flat object out of parser events. Refusing arrays and inner objects as they begin also
// keeps the parser from recursing as deep as a peer likes.
class FlatObject : public nlohmann::json_sax<json> {
 public:
  json object = json::object();

  bool null() override { return false; }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t& value) override { return put(json::binary(std::move(value))); }
  bool start_object(std::size_t) override { return !std::exchange(started_, true); }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return !object.contains(key_);
  }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return false; }
  bool end_array() override { return false; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool put(json value) {
    if (!started_) return false;
    object[key_] = std::move(value);
    return true;
  }
  bool started_ = false;
  std::string key_;
};

std::string to_payload(const json& object) {
  std::string payload;
  json::to_cbor(object, payload);
  return payload;
}

// Reads a payload field by field; ok() tells whether all were there, of their types, and no others.
class Reader {
 public:
  explicit Reader(std::string_view payload) {
    ok_ = json::sax_parse(payload.begin(), payload.end(), &fields_, json::input_format_t::cbor);
  }

  void read(const char* name, std::string& value) {
    if (const json* field = find(name, &json::is_string)) value = field->get<std::string>();
  }
  void read(const char* name, bool& value) {
    if (const json* field = find(name, &json::is_boolean)) value = field->get<bool>();
  }
  void read(const char* name, double& value) {
    if (const json* field = find(name, &json::is_number_float)) value = field->get<double>();
    ok_ = ok_ && std::isfinite(value);
  }
  // An integer of 0 to `limit`.
  template <std::integral Integer>
  void read(const char* name, Integer& value, std::int64_t limit) {
    const json* field = find(name, &json::is_number_integer);
    if (field == nullptr) return;
    const auto number = field->get<std::int64_t>();
    ok_ = number >= 0 && number <= limit;
    if (ok_) value = static_cast<Integer>(number);
  }
  void read(const char* name, std::vector<std::byte>& value) {
    const json* field = find(name, &json::is_binary);
    if (field == nullptr) return;
    const auto& bytes = field->get_binary();
    value.resize(bytes.size());
    if (!bytes.empty()) std::memcpy(value.data(), bytes.data(), bytes.size());
  }
  bool ok() const { return ok_ && used_ == fields_.object.size(); }

 private:
  const json* find(const char* name, bool (json::*is_type)() const noexcept) {
    const auto field = fields_.object.find(name);
    ok_ = ok_ && field != fields_.object.end() && ((*field).*is_type)();
    ++used_;
    return ok_ ? &*field : nullptr;
  }
  FlatObject fields_;
  bool ok_ = false;
  std::size_t used_ = 0;
};

}  // namespace

std::string encode(const CompileHello& hello) {
  return to_payload({{"protocol", hello.protocol},
                     {"compiler", hello.compiler_version},
                     {"problem", hello.problem}});
}

std::string encode(const CompileJob& job) {
  return to_payload({{"main", job.main},
                     {"source", job.source.hex()},
                     {"arch", job.arch},
                     {"entry", job.entry},
                     {"line_info", job.line_info},
                     {"deadline_ms", job.deadline.count()}});
}

std::string encode(const CompileResult& result) {
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(result.cubin.data());
  return to_payload({{"status", static_cast<int>(result.status)},
                     {"registers", result.facts.registers},
                     {"spill_bytes", result.facts.spill_bytes},
                     {"shared_bytes", result.facts.shared_bytes},
                     {"compile_ms", result.facts.compile_ms},
                     {"cubin", json::binary({begin, begin + result.cubin.size()})},
                     {"log", result.log}});
}

std::optional<CompileHello> decode_compile_hello(std::string_view payload) {
  CompileHello hello;
  Reader reader(payload);
  reader.read("protocol", hello.protocol, 1 << 20);
  reader.read("compiler", hello.compiler_version);
  reader.read("problem", hello.problem);
  if (!reader.ok()) return std::nullopt;
  return hello;
}

std::optional<CompileJob> decode_job(std::string_view payload) {
  CompileJob job;
  std::string source;
  std::int64_t deadline = 0;
  Reader reader(payload);
  reader.read("main", job.main);
  reader.read("source", source);
  reader.read("arch", job.arch);
  reader.read("entry", job.entry);
  reader.read("line_info", job.line_info);
  reader.read("deadline_ms", deadline, std::int64_t{1} << 40);
  const auto digest = Digest::from_hex(source);
  if (!reader.ok() || !digest) return std::nullopt;
  job.source = *digest;
  job.deadline = std::chrono::milliseconds(deadline);
  return job;
}

std::optional<CompileResult> decode_result(std::string_view payload) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 30;
  CompileResult result;
  int status = 0;
  Reader reader(payload);
  reader.read("status", status, static_cast<int>(CompileStatus::kCrash));
  reader.read("registers", result.facts.registers, 1 << 20);
  reader.read("spill_bytes", result.facts.spill_bytes, kMaxBytes);
  reader.read("shared_bytes", result.facts.shared_bytes, kMaxBytes);
  reader.read("compile_ms", result.facts.compile_ms);
  reader.read("cubin", result.cubin);
  reader.read("log", result.log);
  if (!reader.ok()) return std::nullopt;
  result.status = static_cast<CompileStatus>(status);
  const bool ok = result.status == CompileStatus::kOk;
  if (ok != !result.cubin.empty() || (ok && !cubin_is_well_formed(result.cubin))) {
    return std::nullopt;
  }
  return result;
}

}  // namespace vitune
