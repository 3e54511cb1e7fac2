// catalogue/model_files.cpp -- Reads timm_models.json and timm_calls.json within bounds.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/model_files.h"

#include <algorithm>
#include <cctype>

#include "catalogue/json_input.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json_fault.h"
#include "core/printable.h"
#include "generator/operator.h"

namespace vitune {
namespace {

using nlohmann::json;

constexpr int kModelsSchema = 1, kCallsSchema = 2;
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
  // A number above int64 is unsigned, and above `most` in any case.
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

json read_document(const std::filesystem::path& path, const char* expected, int schema) {
  const Place place{path.string()};
  const std::string text = read_file(path);
  if (is_blank(text)) place.malformed(formatted("is empty; expected {}", expected));
  json document = parse_json(text, path.string(), 1, expected);
  if (field(document, "schema", place) != schema) {
    place.malformed(formatted("has schema {}: this version reads {}",
                              document["schema"].dump().substr(0, 40), schema));
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

bool is_digit_at(const std::string& text, std::size_t at) {
  return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
}

// True if each '*' of a text stands in "N*images".
bool is_general(const std::string& text) {
  for (auto at = text.find('*'); at != std::string::npos; at = text.find('*', at + 1)) {
    if (at == 0 || !is_digit_at(text, at - 1) || text.compare(at, 7, "*images") != 0) return false;
  }
  return true;
}

std::vector<std::string> read_texts(const json& document, const std::filesystem::path& path) {
  std::vector<std::string> texts;
  for (const json& entry : list(document, "texts", 0, kMaxTexts, {path.string()})) {
    const Place place{formatted("{}: text {}", path.string(), texts.size())};
    std::string text = label(entry, "it", kMaxText, place);
    const std::string name = text.substr(0, text.find(' '));
    if (find_operator(name) == nullptr || name.size() == text.size() || !is_general(text)) {
      place.malformed(formatted(
          "'{}' is not an operator and its words, with N*images where a number grows", text));
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

// The texts of the file and what they have in common.
struct Texts {
  std::vector<std::string> texts;
  std::int64_t few_rows = 0;
};

// Notes the third number of a call: 1: each image makes it; 2 and 3: layers of few and of many
// rows.
void set_when(AskedCall& call, std::int64_t when, const Place& place) {
  call.each_image = when == 1;
  if (when == 1) return;
  call.rows = when == 2 ? Rows::kFew : Rows::kMany;
  if (call.text.find(" m=") == std::string::npos) {
    place.malformed(formatted("depends on the rows, and '{}' has none (m=)", call.text));
  }
}

// Adds the calls of a list of a model.
void add_asked_calls(const json& entry, const char* name, const Texts& known, bool are_second,
                     const Place& place, std::vector<AskedCall>& calls) {
  std::size_t number = 0;
  for (const json& row : list(entry, name, 0, kMaxCallsOfModel, place)) {
    const Place inner{formatted("{}, {} {}", place.text, name, ++number)};
    if (!row.is_array() || row.size() < 2 || row.size() > 3) {
      inner.malformed("is not [calls, place of the text], with 1, 2 or 3 behind it");
    }
    const std::int64_t last = static_cast<std::int64_t>(known.texts.size()) - 1;
    AskedCall call;
    call.calls = integer(row[0], 1, kMaxCount, "the number of calls", inner);
    const std::int64_t text = integer(row[1], 0, last, "the place of the text", inner);
    call.text = known.texts[static_cast<std::size_t>(text)];
    call.few_rows = known.few_rows;
    if (row.size() == 3) set_when(call, integer(row[2], 1, 3, "the third number", inner), inner);
    call.is_second = are_second;
    calls.push_back(std::move(call));
  }
}

std::vector<OutsideCall> outside_calls(const json& entry, const Place& place) {
  std::vector<OutsideCall> calls;
  const json& left = field(entry, "left", place);
  if (!left.is_object()) place.malformed("field \"left\" is not an object");
  for (const auto& [name, count] : left.items()) {
    calls.push_back({integer(count, 1, kMaxCount, "a number of \"left\"", place),
                     label(name, "a name of \"left\"", kMaxName, place), ""});
  }
  for (const json& row : list(entry, "outside", 0, kMaxCallsOfModel, place)) {
    if (!row.is_array() || row.size() != 3) {
      place.malformed("a call of \"outside\" is not [calls, operator, why]");
    }
    calls.push_back({integer(row[0], 1, kMaxCount, "a number of \"outside\"", place),
                     label(row[1], "an operator of \"outside\"", kMaxName, place),
                     label(row[2], "a reason of \"outside\"", kMaxText, place)});
  }
  return calls;
}

}  // namespace

ModelFile read_model_file(const std::filesystem::path& path) {
  const json document = read_document(
      path, "a JSON object with \"schema\", \"images\", \"source\" and \"models\"", kModelsSchema);
  const Place whole{path.string()};
  integer(field(document, "images", whole), kTracedImages, kTracedImages, "\"images\"", whole);
  ModelFile file;
  file.source = label(field(document, "source", whole), "\"source\"", kMaxText, whole);
  for (const json& entry : list(document, "models", 1, kMaxModels, whole)) {
    Place place = model_place(path, file.models.size());
    Model model;
    model.name = model_name(entry, place);
    for (const json& call : list(entry, kModelOperator, 0, kMaxCallsOfModel, place)) {
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

void read_asked_calls(const std::filesystem::path& path, std::vector<Model>& models) {
  const json document = read_document(
      path, "a JSON object with \"schema\", \"few_rows\", \"texts\" and \"models\"", kCallsSchema);
  const Place whole{path.string()};
  const Texts texts{read_texts(document, path), integer(field(document, "few_rows", whole), 0,
                                                        kMaxCount, "\"few_rows\"", whole)};
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
    add_asked_calls(entry, "compile", texts, false, place, it->compiled);
    add_asked_calls(entry, "second", texts, true, place, it->compiled);
    if (entry.contains("train")) {  // a step that could be recorded
      add_asked_calls(entry, "train", texts, false, place, it->trained);
      add_asked_calls(entry, "train_second", texts, true, place, it->trained);
    }
    add_asked_calls(entry, "drop_in", texts, false, place, it->norms);
    it->outside = outside_calls(entry, place);
  }
  const auto missing = std::ranges::find(seen, false);
  if (missing != seen.end()) {
    const auto at = static_cast<std::size_t>(missing - seen.begin());
    whole.malformed(formatted("model '{}' of timm_models.json is missing", models[at].name));
  }
}

}  // namespace vitune
