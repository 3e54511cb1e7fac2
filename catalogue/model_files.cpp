// catalogue/model_files.cpp -- Reads timm_models.json and timm_calls.json within bounds.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/model_files.h"

#include <algorithm>
#include <cctype>

#include "catalogue/json_input.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json_fault.h"

namespace vitune {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;
constexpr std::size_t kMaxModels = 10'000, kMaxCallsOfModel = 1'000, kMaxTexts = 100'000;
constexpr std::size_t kMaxText = 500;  // bytes
constexpr std::int64_t kMaxCount = 1'000'000;

const json& field(const json& object, const char* name, const Place& place) {
  if (!object.is_object()) place.malformed("is not a JSON object");
  const auto it = object.find(name);
  if (it == object.end()) place.malformed(formatted("field \"{}\" is missing", name));
  return *it;
}

std::int64_t integer(const json& value, std::int64_t least, std::int64_t most, const char* name,
                     const Place& place) {
  const bool is_signed = value.is_number_integer() && !value.is_number_unsigned();
  // What is above int64 is unsigned, and above `most` in any case.
  const bool in_range =
      is_signed ? value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most
                : value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t(most) &&
                      value.get<std::int64_t>() >= least;
  if (!in_range) {
    place.malformed(formatted("{} is not an integer from {} to {}", name, least, most));
  }
  return value.get<std::int64_t>();
}

std::string label(const json& value, const char* name, std::size_t most, const Place& place) {
  if (!value.is_string()) place.malformed(formatted("{} is not a string", name));
  std::string text = value.get<std::string>();
  if (text.empty() || text.size() > most || !is_printable(text)) {
    place.malformed(formatted("{} is not one of 1 to {} printable characters", name, most));
  }
  return text;
}

// An array of `least` to `most` elements.
const json& list(const json& object, const char* name, std::size_t least, std::size_t most,
                 const Place& place) {
  const json& value = field(object, name, place);
  if (!value.is_array()) place.malformed(formatted("field \"{}\" is not an array", name));
  if (value.size() < least || value.size() > most) {
    place.malformed(formatted("field \"{}\" has {} elements: {} to {} are expected", name,
                              value.size(), least, most));
  }
  return value;
}

json read_document(const std::filesystem::path& path, const char* expected) {
  const Place place{path.string()};
  const std::string text = read_file(path);
  if (is_blank(text)) place.malformed(formatted("is empty; expected {}", expected));
  json document = parse_json(text, path.string(), 1, expected);
  if (field(document, "schema", place) != kSchema) {
    place.malformed(formatted("has schema {}: this version reads {}",
                              document["schema"].dump().substr(0, 40), kSchema));
  }
  return document;
}

Place model_place(const std::filesystem::path& path, std::size_t number) {
  return {formatted("{}: model {}", path.string(), number + 1)};
}

std::string model_name(const json& entry, Place& place) {
  std::string name = label(field(entry, "name", place), "\"name\"", kMaxName, place);
  place.text += formatted(" ('{}')", name);
  return name;
}

ModelCall attention_call(const json& entry, const Place& place) {
  ModelCall call;
  call.calls = integer(field(entry, "calls", place), 1, kMaxCount, "\"calls\"", place);
  call.text = label(field(entry, "problem", place), "\"problem\"", kMaxText, place);
  if (entry.contains("each_image")) {
    if (!entry["each_image"].is_boolean()) place.malformed("\"each_image\" is not true or false");
    call.each_image = entry["each_image"].get<bool>();
  }
  if (entry.contains("unsupported")) {
    call.unsupported = label(entry["unsupported"], "\"unsupported\"", kMaxText, place);
    return call;
  }
  try {
    call.traced = AttentionProblem::parse(call.text);
  } catch (const Error& error) {
    throw Error(error.code(), place.text + ": " + error.what());
  }
  if (!call.each_image && call.traced.batch % kTracedImages != 0) {
    place.malformed(formatted("'{}' is not a call of {} images", call.text, kTracedImages));
  }
  return call;
}

// Whether each '*' of a text stands in "N*images".
bool is_scalable(const std::string& text) {
  for (std::size_t at = text.find('*'); at != std::string::npos; at = text.find('*', at + 1)) {
    const bool number = at > 0 && std::isdigit(static_cast<unsigned char>(text[at - 1])) != 0;
    if (!number || text.compare(at, 7, "*images") != 0) return false;
  }
  return true;
}

std::vector<std::string> read_texts(const json& document, const std::filesystem::path& path) {
  std::vector<std::string> texts;
  for (const json& entry : list(document, "texts", 0, kMaxTexts, {path.string()})) {
    const Place place{formatted("{}: text {}", path.string(), texts.size())};
    std::string text = label(entry, "it", kMaxText, place);
    const std::string name = text.substr(0, text.find(' '));
    const bool is_name =
        std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
    if (!is_name || name.size() == text.size() || !is_scalable(text)) {
      place.malformed(
          formatted("'{}' is not an operator and its words, with N*images where a "
                    "number grows",
                    text));
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<OtherCall> other_calls(const json& entry, const std::vector<std::string>& texts,
                                   const Place& place) {
  std::vector<OtherCall> calls;
  for (const json& pair : list(entry, "calls", 0, kMaxCallsOfModel, place)) {
    const Place inner{formatted("{}, call {}", place.text, calls.size() + 1)};
    if (!pair.is_array() || pair.size() != 2) inner.malformed("is not [calls, place of the text]");
    const std::int64_t count = integer(pair[0], 1, kMaxCount, "the number of calls", inner);
    const std::int64_t last = static_cast<std::int64_t>(texts.size()) - 1;
    const std::int64_t text = integer(pair[1], 0, last, "the place of the text", inner);
    calls.push_back({count, texts[static_cast<std::size_t>(text)]});
  }
  return calls;
}

}  // namespace

ModelFile read_model_file(const std::filesystem::path& path) {
  const json document =
      read_document(path, "a JSON object with \"schema\", \"images\", \"source\" and \"models\"");
  const Place whole{path.string()};
  integer(field(document, "images", whole), kTracedImages, kTracedImages, "\"images\"", whole);
  ModelFile file;
  file.source = label(field(document, "source", whole), "\"source\"", kMaxText, whole);
  for (const json& entry : list(document, "models", 1, kMaxModels, whole)) {
    Place place = model_place(path, file.models.size());
    Model model{model_name(entry, place), {}, {}};
    for (const json& call : list(entry, kModelOperator, 1, kMaxCallsOfModel, place)) {
      const Place inner{formatted("{}, call {}", place.text, model.calls.size() + 1)};
      model.calls.push_back(attention_call(call, inner));
    }
    file.models.push_back(std::move(model));
  }
  std::ranges::sort(file.models, {}, &Model::name);
  const auto twice = std::ranges::adjacent_find(file.models, {}, &Model::name);
  if (twice != file.models.end()) whole.malformed(formatted("has '{}' twice", twice->name));
  return file;
}

void read_other_calls(const std::filesystem::path& path, std::vector<Model>& models) {
  const json document =
      read_document(path, "a JSON object with \"schema\", \"texts\" and \"models\"");
  const Place whole{path.string()};
  const std::vector<std::string> texts = read_texts(document, path);
  std::vector<bool> seen(models.size());
  std::size_t number = 0;
  for (const json& entry : list(document, "models", 0, kMaxModels, whole)) {
    Place place = model_place(path, number++);
    const std::string name = model_name(entry, place);
    const auto it = std::ranges::lower_bound(models, name, {}, &Model::name);
    if (it == models.end() || it->name != name)
      place.malformed("timm_models.json has no such model");
    const auto at = static_cast<std::size_t>(it - models.begin());
    if (seen[at]) place.malformed("is there twice");
    seen[at] = true;
    it->others = other_calls(entry, texts, place);
  }
  const auto missing = std::ranges::find(seen, false);
  if (missing != seen.end()) {
    const auto at = static_cast<std::size_t>(missing - seen.begin());
    whole.malformed(formatted("model '{}' of timm_models.json is missing", models[at].name));
  }
}

}  // namespace vitune
