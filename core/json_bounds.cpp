// core/json_bounds.cpp -- Counts a parser's events and keeps none of them.
// SPDX-License-Identifier: Apache-2.0
#include "core/json_bounds.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

using nlohmann::json;

// Each event says whether the parser goes on.
class Counter : public nlohmann::json_sax<json> {
 public:
  explicit Counter(const JsonBounds& bounds) : bounds_(bounds) {}

  bool too_deep() const { return open_ > bounds_.depth; }
  bool too_many() const { return values_ > bounds_.values; }

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool key(string_t&) override { return !too_deep(); }
  bool start_object(std::size_t) override { return begin(); }
  bool start_array(std::size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool value() {
    ++values_;
    return !too_deep() && !too_many();
  }
  bool begin() {
    const bool goes_on = value();
    if (goes_on) ++open_;
    return goes_on;
  }
  bool end() {
    --open_;
    return true;
  }

  JsonBounds bounds_;
  std::int64_t values_ = 0;
  int open_ = 0;
};

}  // namespace

void require_bounds(std::string_view text, const JsonBounds& bounds, const std::string& place) {
  Counter counter(bounds);
  if (json::sax_parse(text.begin(), text.end(), &counter)) return;
  if (counter.too_deep()) {
    throw Error(ErrorCode::kUsage,
                formatted("{}: JSON is nested deeper than {} levels", place, bounds.depth));
  }
  if (counter.too_many()) {
    throw Error(ErrorCode::kUsage,
                formatted("{}: holds more than {} JSON values; split it", place, bounds.values));
  }
}

}  // namespace vitune
