// generator/source_tokens.cpp -- A lexer of C++ and CUDA source, exact about where tokens end.
//
// The rule it keeps: where one of its tokens ends, one of the compiler's ends too. So blanks that
// are put there or taken away change nothing for the compiler.
// SPDX-License-Identifier: Apache-2.0
#include "generator/source_tokens.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

namespace vitune {
namespace {

enum Kind : unsigned char { kOther, kBlank, kDigit, kLetter, kQuote, kOperator, kAlone };

constexpr std::array<Kind, 256> kinds() {
  std::array<Kind, 256> kinds{};
  const auto set = [&](std::string_view characters, Kind kind) {
    for (const char c : characters) kinds[static_cast<unsigned char>(c)] = kind;
  };
  set(" \t", kBlank);
  set("0123456789", kDigit);
  set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$", kLetter);
  for (std::size_t c = 0x80; c < kinds.size(); ++c) kinds[c] = kLetter;
  set("\"'", kQuote);
  set("+-*/%<>=!&|^.:#", kOperator);  // what can stand in an operator of several characters
  set("(){}[];,?~", kAlone);
  return kinds;
}

constexpr std::array<Kind, 256> kKinds = kinds();

Kind kind_of(char c) { return kKinds[static_cast<unsigned char>(c)]; }
bool is_blank(char c) { return kind_of(c) == kBlank; }
bool is_digit(char c) { return kind_of(c) == kDigit; }
bool is_word(char c) { return kind_of(c) == kLetter || kind_of(c) == kDigit; }

class Lexer {
 public:
  Lexer(std::string_view text, bool blanks_count) : text_(text), blanks_count_(blanks_count) {
    tokens_.reserve(text.size());
    if (blanks_count) emit("blanks");
  }

  // True if a directive has the operator that makes a string of a macro's argument.
  bool makes_strings() const { return makes_strings_; }

  std::string run() {
    while (at_ < text_.size()) {
      if (!skip_layout() && !take_token()) {
        emit(text_.substr(token_end_));
        break;
      }
    }
    end_directive();
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  bool comment_begins(std::size_t at) const {
    if (text_[at] != '/' || at + 1 == text_.size()) return false;
    return text_[at + 1] == '/' || text_[at + 1] == '*';
  }

  void emit(std::string_view token) {
    tokens_ += token;
    tokens_ += '\0';
  }

  // A blank counts inside a directive, between two of its tokens.
  void emit_token(std::size_t end) {
    const bool counts = in_directive_ ? !directive_begins_ : blanks_count_;
    if (counts && blank_before_) emit(" ");
    emit(text_.substr(at_, end - at_));
    at_ = token_end_ = end;
    blank_before_ = directive_begins_ = line_begins_ = false;
  }

  void end_directive() {
    if (in_directive_) emit("\n");
    in_directive_ = false;
  }

  // True if blanks, a comment, the end of a line or a joined line stood here and were passed.
  bool skip_layout() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    if (peek() == '\n') {
      end_directive();
      line_begins_ = true;
      ++at_;
    } else if (peek() == '\\') {
      blank_before_ |= at_ != begin;
      skip_joined_line();
    } else if (peek() == '/' && comment_begins(at_)) {
      skip_comment();
    }
    blank_before_ |= at_ != begin;
    return at_ != begin;
  }

  // A backslash at the end of a line is layout only beside a blank: else it joins a token's halves.
  void skip_joined_line() {
    if (peek(1) != '\n') return;
    const bool blank_behind = is_blank(peek(2)) || peek(2) == '\n';
    if (blank_before_ || blank_behind) at_ += 2;
  }

  // True if a joined line may begin here: some compilers pass over blanks after its backslash.
  bool may_join(std::size_t at) const {
    if (at >= text_.size() || text_[at] != '\\') return false;
    const std::size_t next = text_.find_first_not_of(" \t\r\v\f", at + 1);
    return next != std::string_view::npos && text_[next] == '\n';
  }

  // A comment that does not end stays where it is, and so does one that ends elsewhere for some
  // compilers.
  void skip_comment() {
    const auto end = peek(1) == '*' ? block_comment_end() : line_comment_end();
    at_ = end.value_or(at_);
  }

  // Nothing: it does not end, or a joined line may stand between its last two characters.
  std::optional<std::size_t> block_comment_end() const {
    const std::size_t end = text_.find("*/", at_ + 2);
    if (end == std::string_view::npos) return std::nullopt;
    for (std::size_t at = at_ + 2; at < end; ++at) {
      if (text_[at] == '*' && may_join(at + 1)) return std::nullopt;
    }
    return end + 2;
  }

  // Nothing: blanks stand between a backslash and the end of its line.
  std::optional<std::size_t> line_comment_end() const {
    std::size_t at = at_;
    for (; at < text_.size() && text_[at] != '\n'; ++at) {
      if (!may_join(at)) continue;
      if (text_[at + 1] != '\n') return std::nullopt;
      ++at;
    }
    return at;
  }

  // False: this is no token that all compilers read alike.
  bool take_token() {
    const char c = peek();
    if (line_begins_ && (c == '#' || c == '%')) return take_directive();
    switch (kind_of(c)) {
      case kLetter:
        return take_up_to(word_end());
      case kDigit:
        return take_up_to(number_end(at_));
      case kAlone:
        return take_up_to(at_ + 1);
      case kQuote:
        return take_up_to(literal_end(at_));
      case kOperator:
        return !comment_begins(at_) && take_operator();
      default:
        return false;
    }
  }

  bool take_operator() {
    const std::string_view token = text_.substr(at_, operator_end() - at_);
    makes_strings_ |= in_directive_ && token != "##" &&
                      (token.find('#') != token.npos || token.find("%:") != token.npos);
    return take_up_to(at_ + token.size());
  }

  bool take_up_to(std::optional<std::size_t> end) {
    if (end) emit_token(*end);
    return end.has_value();
  }

  // "%:" is another spelling of "#", which no template needs.
  bool take_directive() {
    if (peek() == '%') return peek(1) != ':' && take_up_to(operator_end());
    end_directive();
    emit("\n#");
    token_end_ = ++at_;
    in_directive_ = directive_begins_ = true;
    line_begins_ = blank_before_ = false;
    return true;
  }

  // A preprocessing number: 0x1p-3, 1'000, 1.5e+6f.
  std::size_t number_end(std::size_t at) const {
    for (; at < text_.size(); ++at) {
      const char c = text_[at];
      if (is_word(c) || c == '.') continue;
      const bool sign = (c == '+' || c == '-') &&
                        std::string_view("eEpP").find(text_[at - 1]) != std::string_view::npos;
      const bool separator = c == '\'' && at + 1 < text_.size() && is_word(text_[at + 1]);
      if (!sign && !separator) break;
    }
    return at;
  }

  // A point that a digit follows begins a number, in which the operators before it then are.
  std::size_t operator_end() const {
    std::size_t end = at_;
    while (end < text_.size() && kind_of(text_[end]) == kOperator && !comment_begins(end)) ++end;
    const bool number = end < text_.size() && text_[end - 1] == '.' && is_digit(text_[end]);
    return number ? number_end(end) : end;
  }

  std::size_t skip_word(std::size_t at) const {
    while (at < text_.size() && is_word(text_[at])) ++at;
    return at;
  }

  // A word that a quotation mark follows may be the prefix of a literal.
  std::optional<std::size_t> word_end() const {
    static constexpr std::array<std::string_view, 5> kRaw = {"R", "LR", "uR", "UR", "u8R"};
    const std::size_t end = skip_word(at_);
    if (end == text_.size() || (text_[end] != '"' && text_[end] != '\'')) return end;
    const std::string_view word = text_.substr(at_, end - at_);
    const bool raw = text_[end] == '"' && std::ranges::find(kRaw, word) != kRaw.end();
    return raw ? raw_literal_end(end) : literal_end(end);
  }

  // With the suffix, if one follows at once. Nothing: the line ends first.
  std::optional<std::size_t> literal_end(std::size_t begin) const {
    for (std::size_t at = begin + 1; at < text_.size() && text_[at] != '\n'; ++at) {
      if (text_[at] == text_[begin]) return skip_word(at + 1);
      if (text_[at] == '\\') ++at;
    }
    return std::nullopt;
  }

  std::optional<std::size_t> raw_literal_end(std::size_t begin) const {
    const std::size_t open = text_.find('(', begin);
    if (open == std::string_view::npos) return std::nullopt;
    const std::string close = ")" + std::string(text_.substr(begin + 1, open - begin - 1)) + "\"";
    const std::size_t end = text_.find(close, open);
    if (end == std::string_view::npos) return std::nullopt;
    return skip_word(end + close.size());
  }

  const std::string_view text_;
  const bool blanks_count_;  // everywhere, not in directives alone
  std::size_t at_ = 0;
  std::size_t token_end_ = 0;  // of the last one
  std::string tokens_;
  bool line_begins_ = true;  // nothing but layout since the last line ended
  bool in_directive_ = false;
  bool directive_begins_ = false;  // after its "#"
  bool blank_before_ = true;       // layout, or nothing at all, since the last token
  bool makes_strings_ = false;
};

// Each process makes it once of an embedded file: the files of a kernel have 100 to 200 KB.
Digest digest_of_tokens(const EmbeddedFile& file) {
  struct Known {
    std::mutex mutex;
    std::optional<Digest> digest;
  };
  static std::vector<Known> known(embedded_templates().size());
  const auto files = embedded_templates();
  const auto at = std::ranges::lower_bound(files, file.path, {}, &EmbeddedFile::path);
  if (at == files.end() || at->text.data() != file.text.data()) {
    return sha256(tokens_of(file.text));
  }
  Known& entry = known[static_cast<std::size_t>(at - files.begin())];
  const std::lock_guard lock(entry.mutex);
  if (!entry.digest) entry.digest = sha256(tokens_of(file.text));
  return *entry.digest;
}

}  // namespace

std::string tokens_of(std::string_view text) {
  Lexer lexer(text, false);
  std::string tokens = lexer.run();
  return lexer.makes_strings() ? Lexer(text, true).run() : tokens;
}

Digest token_digest(const Source& source) {
  Sha256 hash;
  hash.add(std::string_view("vitune tokens 1")).add(sha256(tokens_of(source.main)).hex());
  hash.add(static_cast<std::int64_t>(source.headers.size()));
  for (const EmbeddedFile& header : source.headers) {
    hash.add(header.path).add(digest_of_tokens(header).hex());
  }
  return hash.finish();
}

}  // namespace vitune
