// tests/model/model_files.h -- A small sound model file with every kind of node.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>

#include "core/half.h"
#include "model/check.h"
#include "model/graph.h"
#include "model/model_file.h"
#include "model/node_problems.h"

namespace vitune::test {

// A directory of this test alone, removed with all it holds.
class ModelFolder {
 public:
  ModelFolder() {
    // In memory where that is possible: tests write thousands of files.
    const std::filesystem::path base =
        ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (base / "vitune_model_test.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + name);
    path_ = name;
  }
  ~ModelFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  std::filesystem::path write(const std::string& bytes) const {
    const auto path = path_ / "model.safetensors";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return path;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string length_of_header(std::uint64_t length) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>((length >> (8 * i)) & 0xff);
  return bytes;
}

inline std::string bytes_of(const std::string& header, std::size_t data) {
  return length_of_header(header.size()) + header + std::string(data, '\x3c');
}

// 16 tokens of 64 channels, 2 heads of 32: patches, positions, a norm, q, k and v, attention, the
// same in windows, a projection with its residual, a mean over tokens, a head.
inline nlohmann::ordered_json small_graph() {
  return nlohmann::ordered_json::parse(R"json({
    "inputs": [{"name": "pixels", "type": "bf16", "shape": ["B", 3, 16, 16]}],
    "outputs": [{"name": "logits", "of": "t7"}],
    "values": [
      {"name": "t0", "type": "bf16", "shape": ["B", 17, 64]},
      {"name": "t1", "type": "bf16", "shape": ["B", 17, 192]},
      {"name": "t2", "type": "bf16", "shape": ["B", 17, 64]},
      {"name": "t3", "type": "bf16", "shape": ["B", 17, 64]},
      {"name": "t4", "type": "bf16", "shape": ["B", 16, 192]},
      {"name": "t5", "type": "bf16", "shape": ["B", 4, 4, 2, 32]},
      {"name": "t6", "type": "bf16", "shape": ["B", 64]},
      {"name": "t7", "type": "bf16", "shape": ["B", 8]},
      {"name": "t8", "type": "bf16", "shape": ["B", 17, 64]}],
    "nodes": [
      {"op": "linear", "at": "embed",
       "x": {"of": "pixels", "extents": ["B", 4, 4, 3, 4, 4], "strides": [768, 64, 4, 256, 16, 1]},
       "w": "embed.weight", "bias": "embed.bias",
       "residual": {"of": "pos", "offset": 64, "extents": ["B", 16, 64], "strides": [0, 64, 1]},
       "out": {"of": "t0", "offset": 64, "extents": ["B", 16, 64], "strides": [1088, 64, 1]}},
      {"op": "map", "at": "", "x": "add(a,b)",
       "a": {"of": "cls", "extents": ["B", 64], "strides": [0, 1]},
       "b": {"of": "pos", "extents": ["B", 64], "strides": [0, 1]},
       "out": {"of": "t0", "extents": ["B", 64], "strides": [1088, 1]}},
      {"op": "linear", "at": "qkv", "act": "gelu", "x": "t0", "w": "qkv.weight", "bias": "qkv.bias",
       "norm": {"kind": "layer", "weight": "norm.weight", "bias": "norm.bias", "eps": 1e-6},
       "out": "t1"},
      {"op": "attention", "at": "attn", "scale": 0.125,
       "q": {"of": "t1", "extents": ["B", 2, 17, 32], "strides": [3264, 32, 192, 1]},
       "k": {"of": "t1", "offset": 64, "extents": ["B", 2, 17, 32], "strides": [3264, 32, 192, 1]},
       "v": {"of": "t1", "offset": 128, "extents": ["B", 2, 17, 32],
             "strides": [3264, 32, 192, 1]},
       "bias": {"of": "bias", "extents": [1, 2, 17, 17], "strides": [0, 289, 17, 1]},
       "out": {"of": "t2", "extents": ["B", 2, 17, 32], "strides": [1088, 32, 64, 1]}},
      {"op": "norm", "at": "norm", "kind": "rms", "eps": 1e-5, "x": "t2", "residual": "t0",
       "weight": "norm.weight", "sum": "t8", "out": "t3"},
      {"op": "linear", "at": "qkv", "w": "qkv.weight",
       "x": {"of": "t3", "offset": 64, "extents": ["B", 16, 64], "strides": [1088, 64, 1]},
       "out": "t4"},
      {"op": "window_attention", "at": "windows", "window": [2, 2], "shift": [1, 1],
       "x": {"of": "t4", "extents": ["B", 4, 4, 3, 2, 32], "strides": [3072, 768, 192, 64, 32, 1]},
       "out": "t5"},
      {"op": "map", "at": "pool", "x": "a", "by": "mean", "over": 1, "y": "mul(r,2)",
       "a": {"of": "t5", "extents": ["B", 64, 16], "strides": [1024, 1, 64]}, "out": "t6"},
      {"op": "linear", "at": "head", "x": "t6", "w": "head.weight", "scale": "head.scale",
       "out": "t7"}]})json");
}

// Every extent is 1, so that a tensor without dimensions has as many elements as any other: what
// looks at a last extent must look whether there is one.
inline nlohmann::ordered_json tiny_graph() {
  return nlohmann::ordered_json::parse(R"json({
    "inputs": [{"name": "in", "type": "bf16", "shape": [1, 1]}],
    "outputs": [{"name": "out", "of": "t4"}],
    "values": [
      {"name": "t0", "type": "bf16", "shape": [1, 1]}, {"name": "t1", "type": "bf16", "shape": [1, 1]},
      {"name": "t2", "type": "bf16", "shape": [1, 1]}, {"name": "t3", "type": "bf16", "shape": [1, 1]},
      {"name": "t4", "type": "bf16", "shape": [1, 1]}, {"name": "t5", "type": "bf16", "shape": [1, 1]}],
    "nodes": [
      {"op": "map", "at": "", "x": "add(a,b)", "a": "in", "b": "one", "out": "t0"},
      {"op": "map", "at": "", "x": "a", "by": "softmax", "over": 1, "a": "t0", "out": "t1"},
      {"op": "linear", "at": "", "x": "t1", "w": "one", "residual": "t0", "out": "t2"},
      {"op": "linear", "at": "", "x": "t2", "w": "one", "norm": {"kind": "rms", "eps": 1e-5},
       "out": "t3"},
      {"op": "norm", "at": "", "kind": "layer", "eps": 1e-5, "x": "t3", "residual": "t2",
       "out": "t4"},
      {"op": "matmul", "at": "", "a": "t3", "b": "one", "scale": 0.5, "out": "t5"}]})json");
}

inline nlohmann::ordered_json tiny_header(const nlohmann::ordered_json& graph) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"vitune.format", "1"}, {"vitune.graph", graph.dump()}};
  header["one"] = {{"dtype", "BF16"}, {"shape", {1, 1}}, {"data_offsets", {0, 2}}};
  header["scalar"] = {
      {"dtype", "BF16"}, {"shape", nlohmann::ordered_json::array()}, {"data_offsets", {2, 4}}};
  return header;
}

// Tensors of small_graph(), in the order in which they lie.
inline nlohmann::ordered_json small_header(const nlohmann::ordered_json& graph) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"vitune.format", "1"},
                            {"vitune.graph", graph.dump()},
                            {"source", "a test"},
                            {"license", "apache-2.0"}};
  std::int64_t end = 0;
  const auto add = [&](const char* name, const char* type, std::vector<std::int64_t> shape) {
    std::int64_t bytes = std::string(type) == "F32" ? 4 : 2;
    for (const std::int64_t extent : shape) bytes *= extent;
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  };
  add("embed.weight", "BF16", {64, 3, 4, 4});
  add("embed.bias", "F32", {64});
  add("pos", "BF16", {17, 64});
  add("cls", "BF16", {64});
  add("qkv.weight", "BF16", {192, 64});
  add("qkv.bias", "BF16", {192});
  add("norm.weight", "BF16", {64});
  add("norm.bias", "BF16", {64});
  add("bias", "BF16", {2, 17, 17});
  add("head.weight", "BF16", {8, 64});
  add("head.scale", "F32", {8});
  return header;
}

inline std::size_t data_of(const nlohmann::ordered_json& header) {
  std::size_t most = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      most = std::max(most, entry["data_offsets"][1].get<std::size_t>());
    }
  }
  return most;
}

inline std::string small_file() {
  const auto header = small_header(small_graph());
  return bytes_of(header.dump(), data_of(header));
}

// The same with normal numbers of deviation 0.3 in all tensors, and `labels`, if any.
inline std::string drawn_small_file(const std::string& labels = "") {
  auto header = small_header(small_graph());
  if (!labels.empty()) header["__metadata__"]["vitune.labels"] = labels;
  std::string file = bytes_of(header.dump(), data_of(header));
  const std::size_t data = file.size() - data_of(header);
  std::mt19937 engine(1);
  std::normal_distribution<float> normal(0.0f, 0.3f);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t size = entry["dtype"] == "F32" ? 4 : 2;
    const std::size_t end = entry["data_offsets"][1].get<std::size_t>();
    for (std::size_t at = entry["data_offsets"][0].get<std::size_t>(); at < end; at += size) {
      const float value = normal(engine);
      const std::uint16_t bits = rounded_bf16(value);
      std::memcpy(&file[data + at],
                  size == 4 ? static_cast<const void*>(&value) : static_cast<const void*>(&bits),
                  size);
    }
  }
  return file;
}

inline std::string tiny_file() {
  const auto header = tiny_header(tiny_graph());
  return bytes_of(header.dump(), data_of(header));
}

// All that `vitune models FILE` does with a file but for asking databases: the number of its
// problems. Throws Error.
inline std::size_t read_all(const std::filesystem::path& path, std::int64_t batch) {
  const ModelContainer file = load_model_file(path);
  const ModelGraph graph = read_model_graph(file.text("vitune.graph"), path.string());
  require_sound(file, graph, 1);
  require_sound(file, graph, batch);
  const BatchTensors tensors(file, graph, batch);
  std::size_t problems = 0;
  for (const ModelNode& node : graph.nodes) problems += node_problems(tensors, node).size();
  check_model_digest(file);
  return problems;
}

}  // namespace vitune::test
