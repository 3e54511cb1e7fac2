// catalogue/problem_set.cpp -- Reads problem files; the formats are in docs/problems.md.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/problem_set.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "catalogue/json_input.h"
#include "catalogue/predicted_floor.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json_fault.h"
#include "core/printable.h"
#include "generator/problem_words.h"

namespace vitune {
namespace {

using nlohmann::json;

std::string read_standard_input(const Place& place) {
  std::string content;
  std::array<char, 1 << 16> block{};
  while (const std::size_t count = std::fread(block.data(), 1, block.size(), stdin)) {
    content.append(block.data(), count);
    if (content.size() > kMaxFileBytes) place.malformed("has more than 64 MiB; split it");
  }
  if (std::ferror(stdin) != 0) place.malformed("cannot be read: input/output error");
  return content;
}

std::optional<std::string> string_field(const json& entry, const char* field, const Place& place) {
  const auto it = entry.find(field);
  if (it == entry.end() || it->is_null()) return std::nullopt;
  if (!it->is_string()) place.malformed(formatted("field \"{}\" is not a string", field));
  return it->get<std::string>();
}

std::string label_field(const json& entry, const char* field, const Place& place) {
  const std::string label = string_field(entry, field, place).value_or("");
  if (label.size() > kMaxName || !is_printable(label)) {
    place.malformed(formatted("field \"{}\" is {}: use at most {} printable characters", field,
                              in_quotes(label), kMaxName));
  }
  return label;
}

double microseconds(const json& object, const char* field, const Place& place) {
  const auto it = object.find(field);
  if (it == object.end() || !it->is_number()) {
    place.malformed(formatted("field \"{}\" is missing or not a number", field));
  }
  const double value = it->get<double>();
  if (!std::isfinite(value) || value <= 0) {
    place.malformed(formatted("field \"{}\" is {}: use microseconds above 0", field, value));
  }
  return value;
}

std::vector<PeerTime> peer_times(const json& entry, const Place& place) {
  const auto it = entry.find("peers_us");
  if (it == entry.end() || it->is_null()) return {};
  if (!it->is_object()) place.malformed("field \"peers_us\" is not an object");
  std::vector<PeerTime> peers;
  for (const auto& [peer, times] : it->items()) {
    const Place inner{place.text + ", peer " + in_quotes(peer)};
    if (peer.empty() || peer.size() > kMaxName || !is_printable(peer)) {
      inner.malformed("use a name of printable characters");
    }
    if (!times.is_object()) inner.malformed("is not an object with \"cold\" and \"warm\"");
    peers.push_back({peer, microseconds(times, "cold", inner), microseconds(times, "warm", inner)});
  }
  return peers;
}

// How often a pass asks for the problem; 0 if the entry does not say.
std::int64_t calls_field(const json& entry, const Place& place) {
  constexpr std::int64_t kMost = 1'000'000'000;
  const auto it = entry.find("calls");
  if (it == entry.end() || it->is_null()) return 0;
  if (!it->is_number_unsigned() || it->get<std::uint64_t>() < 1 ||
      it->get<std::uint64_t>() > std::uint64_t{kMost}) {
    place.malformed(formatted("field \"calls\" is not an integer from 1 to {}", kMost));
  }
  return it->get<std::int64_t>();
}

// From the time of all calls of each problem, which stands in its share, to the share.
void divide_by_pass(std::vector<NamedProblem>& problems) {
  double pass_us = 0;
  for (const NamedProblem& problem : problems) pass_us += problem.share;
  if (pass_us <= 0) return;
  for (NamedProblem& problem : problems) problem.share /= pass_us;
}

ProblemPtr parse_at(std::string_view text, const Place& place) {
  try {
    return parse_problem(text);
  } catch (const Error& error) {
    throw Error(error.code(), place.text + ": " + error.what());
  }
}

NamedProblem entry_problem(const json& entry, Place place) {
  if (!entry.is_object()) place.malformed("is not a JSON object");
  NamedProblem result;
  result.name = label_field(entry, "name", place);
  if (!result.name.empty()) place.text += " ('" + result.name + "')";
  result.group = label_field(entry, "group", place);
  const auto text = string_field(entry, "problem", place);
  if (!text) place.malformed("field \"problem\" (the text of a problem) is missing");
  result.problem = parse_at(*text, place);
  if (result.name.empty()) result.name = result.problem->text();
  result.peers = peer_times(entry, place);
  const auto floor = entry.find("floor_us");
  if (floor != entry.end() && !floor->is_null()) {
    result.floor_us = microseconds(entry, "floor_us", place);
  }
  if (const std::int64_t calls = calls_field(entry, place); calls > 0) {
    result.share = h200_floor_us(*result.problem) * static_cast<double>(calls);
  }
  return result;
}

std::vector<NamedProblem> read_document(const std::string& content, const std::string& file) {
  constexpr char kExpected[] = "a JSON object with \"schema\": 1 and \"problems\"";
  const Place place{file};
  if (is_blank(content)) {
    place.malformed(formatted("is empty; expected {} (docs/problems.md)", kExpected));
  }
  const json document = parse_json(content, file, 1, kExpected);
  if (!document.is_object()) {
    place.malformed("is not a JSON object with \"schema\" and \"problems\"");
  }
  const auto schema = document.find("schema");
  if (schema == document.end() || !schema->is_number_integer()) {
    place.malformed("field \"schema\" is missing: this version writes and reads 1");
  }
  if (*schema != 1) {
    place.malformed(
        formatted("has schema {}: this version reads 1; update vitune", schema->dump()));
  }
  const auto problems = document.find("problems");
  if (problems == document.end() || !problems->is_array()) {
    place.malformed("field \"problems\" is missing or not an array");
  }
  std::vector<NamedProblem> result;
  for (const json& entry : *problems) {
    result.push_back(entry_problem(entry, {formatted("{}: problem {}", file, result.size() + 1)}));
  }
  return result;
}

// One problem text or JSON object per line; "#" begins a comment line.
std::vector<NamedProblem> read_lines(std::string_view content, const std::string& file) {
  constexpr char kExpected[] = "a JSON object with \"problem\" in each line";
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of editors that write one
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  std::vector<NamedProblem> result;
  for (std::int64_t number = 1; !content.empty(); ++number) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    line.remove_prefix(first);
    const Place place{formatted("{}:{}", file, number)};
    if (line[0] == '{') {
      result.push_back(entry_problem(parse_json(line, file, number, kExpected), place));
    } else {
      ProblemPtr problem = parse_at(line, place);
      std::string name = problem->text();
      result.push_back({std::move(name), "", std::move(problem), {}, {}});
    }
  }
  return result;
}

}  // namespace

std::vector<NamedProblem> load_problem_file(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  const bool lines = path == "-" || extension == ".jsonl" || extension == ".txt";
  const Place place{path == "-" ? "standard input" : path.string()};
  std::error_code ignored;
  if (!lines && extension != ".json" && std::filesystem::is_regular_file(path, ignored)) {
    place.malformed("its name does not say how to read it: use .json, .jsonl or .txt");
  }
  const std::string content = path == "-" ? read_standard_input(place) : read_file(path);
  std::vector<NamedProblem> problems =
      lines ? read_lines(content, place.text) : read_document(content, place.text);
  if (problems.empty()) {
    place.malformed(lines ? "holds no problem; expected one in each line, for example bf16 b=32 "
                            "h=12 n=197 d=64 (docs/problems.md)"
                          : "holds no problem; expected some in \"problems\" (docs/problems.md)");
  }
  divide_by_pass(problems);
  return problems;
}

}  // namespace vitune
