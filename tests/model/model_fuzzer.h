// tests/model/model_fuzzer.h -- Changes model files at random, by a seed, reads and binds each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "model/bind.h"
#include "model/constants.h"
#include "model/image_mixing.h"
#include "model/memory_plan.h"
#include "tests/model/model_files.h"

namespace vitune::test {

struct ModelFuzzReport {
  std::uint64_t runs = 0;
  std::uint64_t accepted = 0;
  std::optional<std::string> finding;
};

// Does what a session does with a sound file before it uses a device: steps, places, constants.
inline void bind_all(const std::filesystem::path& path, std::int64_t batch) {
  const ModelContainer file = load_model_file(path);
  const ModelGraph graph = read_model_graph(file.text("vitune.graph"), path.string());
  const BoundModel model = bind_model(BatchTensors(file, graph, batch), graph, file);
  plan_memory(model, std::vector<std::int64_t>(model.steps.size(), 0));
  for (const ModelBuffer& buffer : model.buffers) {
    if (buffer.kind != BufferKind::kConstant) continue;
    if (buffer.part == FoldedPart::kNone) {
      weight_bytes(file, buffer);
    } else {
      fold_weights(file, buffer.fold);
    }
  }
  static_cast<void>(why_images_mix(graph));
}

// A mutant: an operand of the graph without dimensions, with none of one, or another tensor's;
// bytes of the header or anywhere flipped, a number or a word of the header replaced, a part cut
// out, doubled or cut off, the length of the header changed.
class ModelFuzzer {
 public:
  ModelFuzzer(std::vector<std::string> seeds, std::uint64_t seed)
      : seeds_(std::move(seeds)), random_(seed) {}

  std::string mutant() {
    if (below(4) == 0) return of_other_shapes();
    std::string bytes = seeds_[below(seeds_.size())];
    for (std::uint64_t i = 0, count = 1 + below(3); i < count && bytes.size() > 16; ++i) {
      change(bytes);
    }
    return bytes;
  }

  // Reads one mutant. What is thrown must be an Error with a sentence that names the file.
  void run(const ModelFolder& folder, ModelFuzzReport& report) {
    const auto path = folder.write(mutant());
    ++report.runs;
    try {
      const auto batch = 1 + static_cast<std::int64_t>(below(64));
      read_all(path, batch);
      bind_all(path, batch);
      ++report.accepted;
    } catch (const Error& error) {
      const std::string what = error.what();
      if (!what.starts_with(path.string() + ": ") || what.size() > 2000) {
        report.finding = "a message that does not name the file, or is long: " + what;
      }
    } catch (const std::exception& error) {
      report.finding = std::string("another exception: ") + error.what();
    }
  }

 private:
  std::uint64_t below(std::uint64_t end) { return random_() % end; }

  // A sound file but for shapes of its graph: no dimensions, extents of 0, other tensors.
  std::string of_other_shapes() {
    const bool tiny = below(2) == 0;
    nlohmann::ordered_json graph = tiny ? tiny_graph() : small_graph();
    for (std::uint64_t i = 0, count = 1 + below(3); i < count; ++i) {
      auto& nodes = graph["nodes"];
      reshape(below(6) == 0 ? graph["values"][below(graph["values"].size())]
                            : nodes[below(nodes.size())]);
    }
    const auto header = tiny ? tiny_header(graph) : small_header(graph);
    return bytes_of(header.dump(), data_of(header));
  }
  void reshape(nlohmann::ordered_json& entry) {
    auto member = entry.begin();
    std::advance(member, static_cast<std::ptrdiff_t>(below(entry.size())));
    if (member.key() == "op" || member.key() == "at" || member.key() == "name") return;
    nlohmann::ordered_json& value = member.value();
    const auto none = nlohmann::ordered_json::array();
    static const std::vector<std::string> kTensors = {"scalar", "one", "in", "t0", "t2", "pos"};
    const std::string& other = kTensors[below(kTensors.size())];
    switch (below(5)) {
      case 0:
        value = {{"of", value.is_string() ? value.get<std::string>() : other},
                 {"extents", none},
                 {"strides", none}};
        return;
      case 1:
        value = other;
        return;
      case 2:
        value = none;
        return;
      case 3:
        if (value.is_object() && value.contains("extents") && !value["extents"].empty()) {
          value["extents"][below(value["extents"].size())] = 0;
        }
        return;
      default:
        if (value.is_object() && value.contains("extents") && !value["extents"].empty()) {
          value["extents"].erase(value["extents"].size() - 1);
          value["strides"].erase(value["strides"].size() - 1);
        }
    }
  }

  static std::uint64_t header_of(const std::string& bytes) {
    std::uint64_t length = 0;
    for (std::size_t i = 8; i-- > 0;) length = (length << 8) | static_cast<unsigned char>(bytes[i]);
    return std::min<std::uint64_t>(length, bytes.size() - 8);
  }

  void change(std::string& bytes) {
    const std::uint64_t header = std::max<std::uint64_t>(1, header_of(bytes));
    switch (below(8)) {
      case 0:
        bytes[8 + below(header)] ^= static_cast<char>(1 << below(8));
        return;
      case 1:
        bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
        return;
      case 2:
        bytes.resize(below(bytes.size()));
        return;
      case 3: {
        const std::uint64_t length = below(2) == 0 ? random_() : header + below(64) - 32;
        bytes.replace(0, 8, length_of_header(length));
        return;
      }
      case 4:
        bytes.append(below(64), '\0');
        return;
      case 5: {
        const std::uint64_t at = 8 + below(header);
        bytes.erase(at, below(40));
        return with_length(bytes, header_of(bytes));
      }
      default:
        return replace_word(bytes, header);
    }
  }

  // A number or a text of the header by another one; the header's length goes along.
  void replace_word(std::string& bytes, std::uint64_t header) {
    static const std::vector<std::string> kWords = {"0",
                                                    "1",
                                                    "-1",
                                                    "7",
                                                    "18446744073709551615",
                                                    "9223372036854775807",
                                                    "1e308",
                                                    "1e999",
                                                    "NaN",
                                                    "4294967296",
                                                    "\\\"B\\\"",
                                                    "\\\"99999999999*B\\\"",
                                                    "[1,2]",
                                                    "null",
                                                    "true",
                                                    "{}",
                                                    "[]",
                                                    "\\\"t0\\\"",
                                                    "[[[[",
                                                    "\"",
                                                    "}",
                                                    "2",
                                                    "17592186044416",
                                                    "\\u0000",
                                                    "\xff\xfe",
                                                    "a",
                                                    "map",
                                                    "-0.5",
                                                    "65536",
                                                    "\\\"pos\\\""};
    const std::uint64_t at = 8 + below(header);
    const std::size_t begin = bytes.find_first_of("0123456789", at);
    if (begin == std::string::npos || begin >= 8 + header) return;
    std::size_t end = begin;
    while (end < bytes.size() && bytes[end] >= '0' && bytes[end] <= '9') ++end;
    const std::string& word = kWords[below(kWords.size())];
    bytes.replace(begin, end - begin, word);
    with_length(bytes, header + word.size() - (end - begin));
  }
  static void with_length(std::string& bytes, std::uint64_t length) {
    if (bytes.size() >= 8) bytes.replace(0, 8, length_of_header(length));
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

}  // namespace vitune::test
