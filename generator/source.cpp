// generator/source.cpp -- Finds the include closure of a main text within the embedded templates.
// SPDX-License-Identifier: Apache-2.0
#include "generator/source.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "core/error.h"

namespace vitune {
namespace {

// Every word that can make a compiler look at a file.
constexpr std::array<std::string_view, 8> kFileWords = {
    "include", "include_next",       "import",      "embed",
    "module",  "__has_include_next", "__has_embed", "__has_include"};

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_space(char c) { return c == ' ' || c == '\t'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

[[noreturn]] void refuse(std::string_view where, std::size_t line, const std::string& why) {
  throw Error(ErrorCode::kFailure, std::string(where) + ":" + std::to_string(line) + ": " + why);
}

// True if a word of `line` is one of kFileWords.
bool names_a_file(std::string_view line) {
  for (std::size_t i = 0; i < line.size();) {
    if (!is_word_character(line[i])) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < line.size() && is_word_character(line[i])) ++i;
    const std::string_view word = line.substr(begin, i - begin);
    if (std::find(kFileWords.begin(), kFileWords.end(), word) != kFileWords.end()) return true;
  }
  return false;
}

// `line` without its `//` comment. A line that ends a block comment is kept whole: there, `//` may
// be part of that comment with a directive behind it.
std::string_view without_comment(std::string_view line) {
  if (line.find("*/") != std::string_view::npos) return line;
  return line.substr(0, line.find("//"));
}

// The path of a line of the form `#include "path"`, or nothing if it has any other form.
std::optional<std::string_view> included_path(std::string_view line) {
  line = trim(line);
  if (!line.starts_with('#')) return std::nullopt;
  line = trim(line.substr(1));
  if (!line.starts_with("include")) return std::nullopt;
  line = trim(line.substr(7));
  if (line.size() < 3 || line.front() != '"' || line.back() != '"') return std::nullopt;
  line = line.substr(1, line.size() - 2);
  if (line.find_first_of("\"\\") != std::string_view::npos) return std::nullopt;
  return line;
}

// Refuses what could make the compiler see other lines than this scan does: control characters (NUL
// ends a C string, some compilers end a line at a carriage return) and doubtful line joins.
void require_plain_text(std::string_view where, std::string_view text) {
  std::size_t line = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '\0' || c == '\r' || c == '\f' || c == '\v') {
      refuse(where, line, "a control character that is not a tab or a newline");
    }
    if (text.substr(i, 3) == "?\?/") refuse(where, line, "the trigraph of a backslash");
    if (c != '\\') continue;
    const std::size_t next = text.find_first_not_of(" \t", i + 1);
    if (next != i + 1 && (next == std::string_view::npos || text[next] == '\n')) {
      refuse(where, line, "blanks between a backslash and the end of the line");
    }
  }
}

// Takes the next logical line (backslash-newline joins lines) off the front of `text`; adds its
// number of physical lines to `number`.
std::string take_line(std::string_view& text, std::size_t& number) {
  std::string line;
  bool joined = true;
  while (joined && !text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    line += text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    joined = line.ends_with('\\');
    if (joined) line.pop_back();
  }
  return line;
}

// The files that `text` includes, in order.
std::vector<std::string> included_files(std::string_view where, std::string_view text) {
  require_plain_text(where, text);
  std::vector<std::string> paths;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::string line = take_line(text, number);
    const std::string_view code = without_comment(line);
    if (!names_a_file(code)) continue;
    const auto path = included_path(code);
    if (!path) {
      refuse(where, number,
             "only the form #include \"path\" may name a file, as the only thing in its line; the "
             "words include, import, embed and module may stand only there and in // comments: " +
                 std::string(trim(code).substr(0, 120)));
    }
    paths.emplace_back(*path);
  }
  return paths;
}

const EmbeddedFile* find_file(std::span<const EmbeddedFile> files, std::string_view path) {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const EmbeddedFile& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

const EmbeddedFile& require_file(std::span<const EmbeddedFile> files, std::string_view from,
                                 std::string_view path) {
  if (const EmbeddedFile* file = find_file(files, path)) return *file;
  throw Error(ErrorCode::kFailure,
              std::string(from) + " includes \"" + std::string(path) +
                  "\", which is not embedded in this program; only files below templates/ can be "
                  "included, by their path from there");
}

// `main`, which names the files `named`, with all that it reaches. includes_of(file) gives the
// paths that a file names.
template <typename IncludesOf>
Source with_closure(std::string main, const std::vector<std::string>& named,
                    std::span<const EmbeddedFile> files, IncludesOf&& includes_of) {
  std::map<std::string_view, std::string_view> closure;
  std::vector<EmbeddedFile> open;
  const auto add = [&](std::string_view from, const auto& paths) {
    for (const std::string_view path : paths) {
      const EmbeddedFile& file = require_file(files, from, path);
      if (closure.emplace(file.path, file.text).second) open.push_back(file);
    }
  };
  add("kernel.cu", named);
  while (!open.empty()) {
    const EmbeddedFile current = open.back();
    open.pop_back();
    add(current.path, includes_of(current));
  }
  Source source;
  for (const auto& [path, text] : closure) source.headers.push_back({path, text});
  source.main = std::move(main);
  return source;
}

// The source of a main text that includes one embedded file and nothing else. Null: there is no
// such file. Each is put together once per process, when somebody asks for it: a tuner assembles
// thousands of sources that include the same file, and a program that launches waits for the first.
const Source* embedded_closure(std::string_view path) {
  struct Closure {
    std::mutex mutex;
    std::optional<Source> source;
  };
  static std::vector<Closure> closures(embedded_templates().size());
  const EmbeddedFile* const file = find_file(embedded_templates(), path);
  if (file == nullptr) return nullptr;
  Closure& closure = closures[static_cast<std::size_t>(file - embedded_templates().data())];
  // Not call_once: an exception that leaves it ends the program where libgcc is linked statically.
  const std::lock_guard lock(closure.mutex);
  if (!closure.source) {
    // By what was found when the files were embedded: looking through them again would take 0.3 ms
    // of a program's first look-up.
    closure.source = with_closure({}, {std::string(path)}, embedded_templates(),
                                  [](const EmbeddedFile& open) { return open.includes; });
  }
  return &*closure.source;
}

}  // namespace

std::string_view embedded_template(std::string_view path) {
  if (const EmbeddedFile* file = find_file(embedded_templates(), path)) return file->text;
  throw Error(ErrorCode::kFailure, "no template '" + std::string(path) + "' is embedded (" +
                                       std::to_string(embedded_templates().size()) +
                                       " are); names are paths below templates/");
}

Digest Source::digest() const {
  Sha256 hash;
  hash.add(std::string_view("vitune source 1")).add(main);
  hash.add(static_cast<std::int64_t>(headers.size()));
  for (const EmbeddedFile& header : headers) hash.add(header.path).add(header.text);
  return hash.finish();
}

Source assemble(std::string main, std::span<const EmbeddedFile> files) {
  const std::vector<std::string> named = included_files("kernel.cu", main);
  return with_closure(std::move(main), named, files, [](const EmbeddedFile& open) {
    return included_files(open.path, open.text);
  });
}

Source assemble(std::string main) {
  const std::vector<std::string> included = included_files("kernel.cu", main);
  const Source* known = included.size() == 1 ? embedded_closure(included.front()) : nullptr;
  if (known == nullptr) return assemble(std::move(main), embedded_templates());
  Source source = *known;
  source.main = std::move(main);
  return source;
}

}  // namespace vitune
