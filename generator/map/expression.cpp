// generator/map/expression.cpp -- Reads an expression token by token, no deeper than its steps may
// be many.
// SPDX-License-Identifier: Apache-2.0
#include "generator/map/expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "generator/problem_words.h"
#include "templates/map/params.cuh"
#include "templates/reference/map_judge_params.cuh"

namespace vitune {
namespace {

using Kind = ExpressionPart::Kind;

struct Word {
  std::string_view name;
  int arguments;
};

// In the order of MapWord.
// clang-format off
constexpr std::array<Word, kMapWords> kWords = {{
    {"add", 2}, {"sub", 2}, {"mul", 2}, {"div", 2}, {"min", 2}, {"max", 2},
    {"lt", 2}, {"where", 3}, {"neg", 1}, {"abs", 1}, {"exp", 1}, {"log", 1},
    {"sqrt", 1}, {"rsqrt", 1}, {"sin", 1}, {"cos", 1}, {"tanh", 1}, {"sigmoid", 1},
    {"erf", 1}, {"relu", 1}, {"gelu", 1}, {"gelu_tanh", 1}, {"quick_gelu", 1}, {"silu", 1},
    {"hardswish", 1},
}};
// clang-format on

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Reader {
 public:
  Reader(std::string_view text, std::string_view letters, std::string_view name)
      : text_(text), letters_(letters), name_(name) {}

  std::vector<ExpressionPart> read() {
    if (text_.size() > kMostExpressionCharacters) {
      malformed(formatted("{} has {} characters: {} are the most", name_, text_.size(),
                          kMostExpressionCharacters));
    }
    argument();
    if (at_ < text_.size()) wrong("there is more behind the end of the expression");
    return std::move(parts_);
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    malformed(formatted("{}: at character {} of {}: {}", name_, at_ + 1, in_quotes(text_), what));
  }

  void argument() {
    if (at_ == text_.size()) wrong("the expression ends too early");
    if (is_letter(text_[at_])) {
      word_or_letter();
    } else {
      constant();
    }
  }
  void word_or_letter() {
    const std::size_t end =
        std::find_if_not(text_.begin() + static_cast<std::ptrdiff_t>(at_), text_.end(), is_letter) -
        text_.begin();
    const std::string_view name = text_.substr(at_, end - at_);
    if (name.size() == 1 && letters_.find(name[0]) != std::string_view::npos) {
      at_ = end;
      parts_.push_back({Kind::kLetter, 0, name[0], 0});
      return;
    }
    const auto found = std::ranges::find(kWords, name, &Word::name);
    if (found == kWords.end()) {
      wrong(formatted("{} is neither a word nor an operand: operands are {}", in_quotes(name),
                      joined(letters_, ", ")));
    }
    if (++steps_ > kMostExpressionSteps) {
      wrong(formatted("the expression has more than {} words: use two maps", kMostExpressionSteps));
    }
    at_ = end;
    for (int i = 0; i < found->arguments; ++i) {
      take(i == 0 ? '(' : ',', *found);
      argument();
    }
    take(')', *found);
    parts_.push_back({Kind::kWord, static_cast<int>(found - kWords.begin()), 0, 0});
  }
  void take(char wanted, const Word& word) {
    if (at_ == text_.size() || text_[at_] != wanted) {
      wrong(formatted("'{}' is missing: '{}' takes {} argument{} in brackets", wanted, word.name,
                      word.arguments, word.arguments == 1 ? "" : "s"));
    }
    ++at_;
  }
  void constant() {
    const std::string_view rest = text_.substr(at_);
    const bool begins_well =
        is_digit(rest[0]) || (rest[0] == '-' && rest.size() > 1 && is_digit(rest[1]));
    if (!begins_well) wrong("neither a word, an operand nor a number begins here");
    double value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || std::abs(value) > std::numeric_limits<float>::max()) {
      wrong("the number is none of fp32's");
    }
    // As JSON has them: 1.5, 1e-05; not 1., 1.e5, 1E5.
    const std::string_view digits = rest.substr(0, static_cast<std::size_t>(end - rest.data()));
    const std::size_t point = std::min(digits.find('.'), digits.size() - 1);
    if (!is_digit(digits.back()) || digits.find('E') != digits.npos ||
        (digits[point] == '.' && !is_digit(digits[point + 1]))) {
      wrong(formatted("{} is no number: write 1.5 or 1e-05", in_quotes(digits)));
    }
    at_ += digits.size();
    parts_.push_back({Kind::kConstant, 0, 0, static_cast<float>(value)});
  }

  std::string_view text_;
  std::string_view letters_;
  std::string_view name_;
  std::size_t at_ = 0;
  int steps_ = 0;
  std::vector<ExpressionPart> parts_;
};

std::string constant_text(float value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

}  // namespace

Expression Expression::parse(std::string_view text, std::string_view letters,
                             std::string_view name) {
  return Expression(Reader(text, letters, name).read());
}

int Expression::steps() const {
  return static_cast<int>(std::ranges::count(parts_, Kind::kWord, &ExpressionPart::kind));
}

std::string Expression::letters() const {
  std::string found;
  for (const ExpressionPart& part : parts_) {
    if (part.kind == Kind::kLetter && found.find(part.letter) == found.npos) found += part.letter;
  }
  std::ranges::sort(found);
  return found;
}

std::string Expression::text() const {
  std::vector<std::string> open;  // arguments that wait for their word
  for (const ExpressionPart& part : parts_) {
    if (part.kind == Kind::kLetter) open.emplace_back(1, part.letter);
    if (part.kind == Kind::kConstant) open.push_back(constant_text(part.value));
    if (part.kind != Kind::kWord) continue;
    const auto first = open.end() - expression_arguments(part.word);
    std::string call = formatted("{}({})", expression_word(part.word),
                                 joined(std::vector<std::string>(first, open.end()), ","));
    open.erase(first, open.end());
    open.push_back(std::move(call));
  }
  return open.front();
}

std::string_view expression_word(int word) { return kWords[static_cast<std::size_t>(word)].name; }
int expression_arguments(int word) { return kWords[static_cast<std::size_t>(word)].arguments; }

}  // namespace vitune
