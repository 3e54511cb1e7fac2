// tests/generator/attention_problem_trace_test.cpp -- The attention calls of real models, as
// traced.
//
// Needs the traces beside the source tree (../shared/catalogue); skipped visibly without them. What
// the project promises of them is also held, in small, by RealProducersAreExpressible.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "catalogue/model_catalogue.h"
#include "catalogue/problem_set.h"
#include "generator/attention/operator.h"
#include "generator/attention/problem.h"

namespace vitune {
namespace {

using nlohmann::json;
using Dims = std::vector<std::int64_t>;

const std::filesystem::path kSource(VITUNE_SOURCE_DIR);
const std::filesystem::path kCatalogue = kSource / ".." / "shared" / "catalogue";

TEST(AttentionProblemTrace, RealProducersAreExpressible) {
  for (const char* text : {
           "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed",
           "attention bf16 b=16 h=16 nq=261 nk=261 d=64 layout=bhnd v=packed",
           "attention fp16 b=8 h=12 nq=577 nk=577 d=64 layout=bnhd",
           "attention bf16 b=600 h=1 nq=196 nk=196 d=64 layout=bnhd bias=fp32:600x1x196x196",
           "attention bf16 b=2048 h=3 nq=49 nk=49 d=32 layout=packed bias=fp32:1x3x49x49",
           "attention bf16 b=2048 h=3 nq=49 nk=49 d=32 layout=packed bias=fp32:64x3x49x49",
           "attention bf16 b=64 h=16 nq=1 nk=729 d=72 layout=bnhd",
           "attention bf16 b=32 h=1 nq=3136 nk=49 d=64 layout=bnhd k=@6272,0,128 v=@6272,0,128",
           "attention bf16 b=2 h=16 nq=4096 nk=300 d=72 layout=bnhd mask=bool:2x1x1x300",
       }) {
    EXPECT_EQ(AttentionProblem::parse(text).text(), text);
  }
}

// One traced call as [batch, head, row, d] views; rank 5 needs one problem per entry of its first
// dimension where that does not fold, so that dimension is left out of the shape.
struct Call {
  Dims q, k, q_strides, k_strides, v_strides;
};

// Makes `call` rank 4, or says that it had to be split.
bool fold(Call& call) {
  bool split = false;
  for (Dims* dims : {&call.q, &call.k}) {
    if (dims->size() == 3) dims->insert(dims->begin() + 1, 1);
  }
  for (Dims* strides : {&call.q_strides, &call.k_strides, &call.v_strides}) {
    if (strides->size() == 3) strides->insert(strides->begin() + 1, 0);
  }
  if (call.q.size() == 5) {
    // [B, H, windows, N, D]: one image's windows are a batch.
    for (Dims* list : {&call.q, &call.k, &call.q_strides, &call.k_strides, &call.v_strides}) {
      *list = {(*list)[2], (*list)[1], (*list)[3], (*list)[4]};
    }
    split = true;
  }
  return split;
}

std::optional<ScoreOperand> operand_of(const json& mask, const AttentionProblem& p) {
  if (mask.is_null()) return std::nullopt;
  EXPECT_EQ(mask["dtype"], "float32");
  Dims shape = mask["shape"], strides = mask["strides"];
  // A rank 3 mask of rank 3 tensors is per batch entry, of rank 4 tensors per head.
  const bool per_batch = shape.size() == 3 && p.heads == 1 && shape[0] == p.batch;
  if (per_batch) {
    shape.insert(shape.begin() + 1, 1);
    strides.insert(strides.begin() + 1, 0);
  }
  while (shape.size() < 4) {
    shape.insert(shape.begin(), 1);
    strides.insert(strides.begin(), 0);
  }
  ScoreOperand operand{.type = ElementType::kFp32, .batches = shape[0], .strides = {}};
  for (std::size_t i = 0; i < 4; ++i) operand.strides[i] = shape[i] == 1 ? 0 : strides[i];
  return operand;
}

AttentionProblem problem_of(const json& line, const Call& call) {
  AttentionProblem p;
  p.batch = call.q[0];
  p.heads = call.q[1];
  p.kv_heads = call.k[1];
  p.nq = call.q[2];
  p.nk = call.k[2];
  p.d = call.q[3];
  p.causal = line["causal"];
  p.scale = line["scale"].is_null() ? default_scale(p.d) : line["scale"].get<double>();
  p.q = {call.q_strides[0], call.q_strides[1], call.q_strides[2]};
  p.k = {call.k_strides[0], call.k_strides[1], call.k_strides[2]};
  p.v = {call.v_strides[0], call.v_strides[1], call.v_strides[2]};
  p.o = bnhd_strides(p.heads, p.nq, p.d);
  p.bias = operand_of(line["mask"], p);
  return p;
}

TEST(AttentionProblemTrace, EveryTracedCallWithinReachIsExpressedAndSurvivesTheRoundTrip) {
  std::ifstream file(kCatalogue / "timm_attention.jsonl");
  if (!file) GTEST_SKIP() << "no traces at " << kCatalogue;
  std::map<std::string, int> counts;
  for (std::string text; std::getline(file, text);) {
    const json line = json::parse(text);
    Call call{line["q"], line["k"], line["q_strides"], line["k_strides"], line["v_strides"]};
    if (call.q.back() > 128 || call.q.back() % 8 != 0) {
      ++counts["head size out of reach"];
      continue;
    }
    if (call.q_strides.back() != 1 || call.k_strides.back() != 1 || call.v_strides.back() != 1) {
      ++counts["last dimension not contiguous"];
      continue;
    }
    counts["one problem per image"] += fold(call) ? 1 : 0;
    const AttentionProblem problem = problem_of(line, call);
    ASSERT_NO_THROW(problem.validate()) << text;
    ASSERT_EQ(AttentionProblem::parse(problem.text()), problem) << text << '\n' << problem.text();
    ++counts["expressed"];
    counts["16-byte vectors"] += problem.vector_bytes() == 16 ? 1 : 0;
    counts["named layouts"] += problem.text().find("=@") == std::string::npos ? 1 : 0;
  }
  for (const auto& [what, count] : counts) {
    RecordProperty(what.substr(0, what.find(' ')), count);
    std::cout << "  " << count << " " << what << '\n';
  }
  EXPECT_GT(counts["expressed"], 700);
  EXPECT_EQ(counts["16-byte vectors"], counts["expressed"]);
}

// The catalogue is made by a script that reads the same traces in its own way.
TEST(AttentionProblemTrace, TheModelCatalogueHoldsEveryTracedCall) {
  std::stringstream file;
  file << std::ifstream(kCatalogue / "timm_attention.jsonl").rdbuf();
  if (!file) GTEST_SKIP() << "no traces at " << kCatalogue;
  file << std::ifstream(kSource / "cmake" / "timm_attention_added.jsonl").rdbuf();
  const auto models = ModelCatalogue::load(kSource / "data");
  std::map<std::pair<std::string, std::string>, std::int64_t> shipped;
  for (const Model& model : models.models()) {
    for (const ModelCall& call : model.calls) {
      const auto text = call.unsupported.empty() ? call.traced.text() : "";
      shipped[{model.name, text}] += call.calls;
    }
  }
  for (std::string text; std::getline(file, text);) {
    const json line = json::parse(text);
    if (line["calls"] == 0) continue;  // a model without a call
    Call call{line["q"], line["k"], line["q_strides"], line["k_strides"], line["v_strides"]};
    const bool within = call.q.back() <= 128 && call.q.back() % 8 == 0;
    std::string key;
    if (within && call.q.size() < 5) {
      fold(call);
      AttentionProblem problem = problem_of(line, call);
      if (problem.bias) problem.bias->type = ElementType::kBf16;
      key = problem.text();
    } else if (within) {
      continue;  // folded differently; ModelCatalogueTest looks at those
    }
    shipped[{line["model"], key}] -= line["calls"].get<std::int64_t>();
    EXPECT_GE((shipped[{line["model"], key}]), 0) << text;
  }
  std::int64_t left = 0;
  for (const auto& [key, calls] : shipped) left += calls;
  EXPECT_EQ(left, 144);  // calls of rank 5
}

TEST(AttentionProblemTrace, WorkAndTrafficAgreeWithTheCatalogue) {
  std::ifstream file(kCatalogue / "bench_problems.json");
  if (!file) GTEST_SKIP() << "no catalogue at " << kCatalogue;
  const json entries = json::parse(file)["problems"];
  const auto ours = preset("bench", std::filesystem::path(VITUNE_SOURCE_DIR) / "data");
  ASSERT_EQ(ours.size(), entries.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const json& theirs = entries[i];
    const AttentionProblem& p = attention_of(*ours[i].problem);
    EXPECT_EQ(ours[i].name, theirs["name"]);
    EXPECT_EQ(ours[i].group, theirs["group"]);
    EXPECT_EQ(p.min_bytes(), theirs["min_bytes"].get<double>()) << ours[i].name;
    // The catalogue takes half of all pairs for causal; of n * n pairs n * (n + 1) / 2 are left.
    const double n = static_cast<double>(p.nk);
    const double factor = p.causal ? (n + 1) / n : 1.0;
    EXPECT_DOUBLE_EQ(p.flops(), theirs["flops"].get<double>() * factor) << ours[i].name;
    ASSERT_TRUE(ours[i].floor_us);
    EXPECT_NEAR(*ours[i].floor_us, std::max(p.flops() / 790e6, p.min_bytes() / 4.3e6),
                0.006 + (factor - 1) * *ours[i].floor_us)
        << ours[i].name;
  }
}

}  // namespace
}  // namespace vitune
