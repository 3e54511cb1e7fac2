// core/json_bounds.cpp -- Counts a parser's events and keeps none of them.
// SPDX-License-Identifier: Apache-2.0
#include "core/json_bounds.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "core/printable.h"

namespace vitune {
namespace {

using nlohmann::json;

// Each event says whether the parser goes on.
class Counter : public nlohmann::json_sax<json> {
 public:
  explicit Counter(const JsonBounds& bounds) : bounds_(bounds) {}

  bool too_deep() const { return open_ > bounds_.depth; }
  bool too_many() const { return values_ > bounds_.values; }
  const std::optional<std::string>& repeated() const { return repeated_; }

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool key(string_t& name) override {
    if (bounds_.unique_names && !names_.back().insert(name).second) repeated_ = name;
    return !too_deep() && !repeated_;
  }
  bool start_object(std::size_t) override {
    if (bounds_.unique_names) names_.emplace_back();
    return begin();
  }
  bool start_array(std::size_t) override { return begin(); }
  bool end_object() override {
    if (bounds_.unique_names) names_.pop_back();
    return end();
  }
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
  // The names of the objects around, if they count. Ordered: names of a hash table can be chosen so
  // that they all collide, and then each is compared with all.
  std::vector<std::set<std::string>> names_;
  std::optional<std::string> repeated_;
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
  if (counter.repeated()) {
    throw Error(ErrorCode::kUsage, formatted("{}: an object has the name '{}' twice; keep one",
                                             place, shown_name(*counter.repeated(), 200)));
  }
}

}  // namespace vitune
