// model/expression.cpp -- Reads an expression token by token, no deeper than its steps may be many.
// SPDX-License-Identifier: Apache-2.0
#include "model/expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/format.h"

namespace vitune {
namespace {

struct Word {
  std::string_view name;
  int arguments;
};

// clang-format off
constexpr std::array<Word, 25> kWords = {{
    {"add", 2}, {"sub", 2}, {"mul", 2}, {"div", 2}, {"min", 2}, {"max", 2},
    {"lt", 2}, {"where", 3}, {"neg", 1}, {"abs", 1}, {"exp", 1}, {"log", 1},
    {"sqrt", 1}, {"rsqrt", 1}, {"sin", 1}, {"cos", 1}, {"tanh", 1}, {"sigmoid", 1},
    {"erf", 1}, {"relu", 1}, {"gelu", 1}, {"gelu_tanh", 1}, {"quick_gelu", 1}, {"silu", 1},
    {"hardswish", 1},
}};
// clang-format on

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class ExpressionReader {
 public:
  ExpressionReader(std::string_view text, std::string_view letters)
      : rest_(text), letters_(letters) {}

  std::string fault() {
    read();
    if (fault_.empty() && !rest_.empty()) fault_ = "there is more behind its end";
    return fault_;
  }
  const std::string& found() const { return found_; }

 private:
  void read() {
    if (!fault_.empty()) return;
    if (rest_.empty()) {
      fault_ = "it ends too early";
    } else if (is_letter(rest_.front())) {
      word();
    } else {
      number();
    }
  }
  void word() {
    std::size_t size = 0;
    while (size < rest_.size() && is_letter(rest_[size])) ++size;
    const std::string_view name = rest_.substr(0, size);
    rest_.remove_prefix(size);
    if (name.size() == 1 && letters_.find(name[0]) != std::string_view::npos) {
      if (found_.find(name[0]) == std::string::npos) found_ += name[0];
      return;
    }
    const auto found = std::ranges::find(kWords, name, &Word::name);
    if (found == kWords.end()) {
      fault_ = formatted("it has the unknown word '{}'", name.substr(0, 40));
      return;
    }
    if (++steps_ > kMaxExpressionSteps) {
      fault_ = formatted("it has more than {} steps", kMaxExpressionSteps);
      return;
    }
    for (int i = 0; i < found->arguments; ++i) {
      take(i == 0 ? '(' : ',', name);
      read();
    }
    take(')', name);
  }
  void take(char wanted, std::string_view name) {
    if (!fault_.empty()) return;
    if (rest_.empty() || rest_.front() != wanted) {
      fault_ = formatted("'{}' has not its arguments in brackets", name);
      return;
    }
    rest_.remove_prefix(1);
  }
  // -12.5e-3: digits before and behind a point, a small e.
  void number() {
    std::size_t size = rest_.front() == '-' ? 1 : 0;
    bool is_one = digits(size);
    if (is_one && size < rest_.size() && rest_[size] == '.') is_one = digits(++size);
    if (is_one && size < rest_.size() && rest_[size] == 'e') {
      ++size;
      if (size < rest_.size() && (rest_[size] == '-' || rest_[size] == '+')) ++size;
      is_one = digits(size);
    }
    double value = 0;
    const char* const begin = rest_.data();
    is_one = is_one && std::from_chars(begin, begin + size, value).ec == std::errc();
    if (!is_one || !std::isfinite(value)) {
      fault_ = "it has a number that is none, or is not finite";
      return;
    }
    rest_.remove_prefix(size);
  }
  // True if there is a digit at `size`, which then is the place behind all of them.
  bool digits(std::size_t& size) const {
    const std::size_t begin = size;
    while (size < rest_.size() && is_digit(rest_[size])) ++size;
    return size > begin;
  }

  std::string_view rest_;
  std::string_view letters_;
  std::string fault_;
  std::string found_;  // letters
  int steps_ = 0;
};

}  // namespace

std::string expression_fault(std::string_view text, std::string_view letters) {
  return ExpressionReader(text, letters).fault();
}

std::string expression_letters(std::string_view text, std::string_view letters) {
  ExpressionReader reader(text, letters);
  reader.fault();
  std::string found = reader.found();
  std::ranges::sort(found);
  return found;
}

}  // namespace vitune
