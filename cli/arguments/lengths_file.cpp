// cli/arguments/lengths_file.cpp -- Reads lengths=@FILE.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/lengths_file.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "catalogue/json_input.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::string_view kWords[] = {"lengths=@", "lengths_k=@"};
constexpr std::string_view kBetween = ", \t\r\n";
constexpr std::size_t kMostText = 4000;  // of a problem's 4096 characters

// The words between any of the separators.
std::vector<std::string_view> words_of(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(separators, at)) != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::string counted_lengths(const std::string& file) {
  const std::string content = read_file(file);
  const std::vector<std::string_view> lengths = words_of(content, kBetween);
  if (lengths.empty()) {
    throw Error(ErrorCode::kUsage, formatted("lengths=@{}: the file is empty; it must have the "
                                             "length of a sequence in each line",
                                             file));
  }
  std::string text;
  for (auto at = lengths.begin(); at != lengths.end();) {
    const auto next = std::find_if(at, lengths.end(), [&](auto other) { return other != *at; });
    const bool is_run = next - at > 1 && at->find('x') == at->npos;
    const auto end = is_run ? next : at + 1;
    text += text.empty() ? "" : ",";
    text += is_run ? formatted("{}x{}", *at, end - at) : std::string(*at);
    at = end;
  }
  if (text.size() > kMostText) {
    throw Error(ErrorCode::kUsage,
                formatted("lengths=@{}: its {} lengths make a problem of more than {} characters; "
                          "sort the file, so that equal lengths are counted together, or take "
                          "fewer",
                          file, lengths.size(), kMostText));
  }
  return text;
}

}  // namespace

std::string with_lengths_of_files(std::string_view text) {
  std::string read;
  for (const std::string_view word : words_of(text, " ")) {
    const auto* const key = std::ranges::find_if(
        kWords, [&](std::string_view known) { return word.starts_with(known); });
    read += read.empty() ? "" : " ";
    if (key == std::end(kWords)) {
      read += word;
      continue;
    }
    read += key->substr(0, key->size() - 1);
    read += counted_lengths(std::string(word.substr(key->size())));
  }
  return read;
}

}  // namespace vitune
