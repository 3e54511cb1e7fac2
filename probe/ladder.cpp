// probe/ladder.cpp -- Source and launch of the ladder's kernels.
// SPDX-License-Identifier: Apache-2.0
#include "probe/ladder.h"

#include <algorithm>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr char kEntry[] = "vitune_attention_forward";
constexpr std::int64_t kMostHeads = 65535;  // of a grid's second dimension

// How many threads work on how many query rows, as the templates have it.
struct Rung {
  std::string name;
  std::int64_t threads, rows;
};

const std::vector<Rung>& rungs() {
  static const std::vector<Rung> kRungs = {{"naive", 128, 128},
                                           {"tiled", 128, 128},
                                           {"register_blocked", 256, 64},
                                           {"tensor_core", 128, 64}};
  return kRungs;
}

// Keys and values of the tensor_core rung: 64 rows each of an odd number of 16-byte chunks.
std::int64_t shared_bytes(const Rung& rung, const AttentionProblem& problem) {
  if (rung.name != "tensor_core") return 0;
  return 2 * 64 * ((2 * ceil_div(problem.d, 16)) | 1) * 16;
}

}  // namespace

const std::vector<std::string>& ladder_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Rung& rung : rungs()) names.push_back(rung.name);
    return names;
  }();
  return kNames;
}

std::optional<std::string> ladder_violation(const AttentionProblem& problem) {
  if (problem.causal || problem.bias || problem.mask || problem.lse || problem.dropout != 0) {
    return "the ladder's kernels know no causal order, bias, mask, log-sum-exp or dropout";
  }
  if (problem.vector_bytes() < 16) {
    return "the ladder's kernels need every row of q, k, v and o aligned to 16 bytes";
  }
  if (problem.batch * problem.heads > kMostHeads) {
    return formatted("the ladder's kernels take {} heads of all the batch at most", kMostHeads);
  }
  return std::nullopt;
}

LadderKernel ladder_kernel(const std::string& name, const AttentionProblem& problem,
                           const std::string& arch) {
  const auto rung = std::find_if(rungs().begin(), rungs().end(),
                                 [&](const Rung& each) { return each.name == name; });
  if (rung == rungs().end()) throw Error(ErrorCode::kFailure, "no kernel is called " + name);
  if (const auto why = ladder_violation(problem)) throw Error(ErrorCode::kUnsupported, *why);
  LadderKernel kernel;
  kernel.request.source = assemble(formatted(
      "namespace vitune {{\nstruct Config {{\n"
      "  static constexpr int kElement = {};\n  static constexpr int kHeadDim = {};\n"
      "}};\n}}  // namespace vitune\n\n#include \"reference/attention_{}.cuh\"\n\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ vitune::AttentionParams params) {{\n"
      "  vitune::attention_{}<vitune::Config>(params);\n}}\n",
      problem.dtype == ElementType::kBf16 ? 1 : 0, problem.d, name, rung->threads, kEntry, name));
  kernel.request.arch = arch;
  kernel.request.entry = kEntry;
  kernel.shape.grid[0] = static_cast<std::uint32_t>(ceil_div(problem.nq, rung->rows));
  kernel.shape.grid[1] = static_cast<std::uint32_t>(problem.batch * problem.heads);
  kernel.shape.block[0] = static_cast<std::uint32_t>(rung->threads);
  kernel.shape.shared_bytes = static_cast<std::uint32_t>(shared_bytes(*rung, problem));
  return kernel;
}

std::vector<std::pair<std::string, CompileRequest>> ladder_samples(const std::string& arch) {
  std::vector<std::pair<std::string, CompileRequest>> samples;
  for (const char* words : {"bf16 b=1 h=1 n=64 d=64", "fp16 b=1 h=1 n=64 d=72"}) {
    const AttentionProblem problem = AttentionProblem::parse(words);
    for (const std::string& name : ladder_names()) {
      samples.emplace_back(formatted("{} {} d={}", name, element_name(problem.dtype), problem.d),
                           ladder_kernel(name, problem, arch).request);
    }
  }
  return samples;
}

}  // namespace vitune
