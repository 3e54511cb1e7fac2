// benchmarks/lab/linear_gate.cu -- Checks and times templates/linear, and cuBLASLt beside it.
//
// Usage:
//   linear_gate device
//     the GPU
//   linear_gate tile FOLDER TILE FIRST PROGRESS
//     every problem from number FIRST on by the tile's kernels, which build_linear_gate.py put into
//     FOLDER; PROGRESS is the file for the number of the problem that has begun, or "done"
//   linear_gate cublaslt LIBRARY
//     the same products by cuBLASLt
// A kernel is checked in its build whose waits are bounded first; what answers wrongly there is not
// timed.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "benchmarks/lab/linear_gate_cublaslt.h"
#include "benchmarks/lab/linear_gate_data.cuh"
#include "benchmarks/lab/linear_gate_problems.h"
#include "benchmarks/lab/linear_gate_tensors.h"
#include "benchmarks/lab/linear_gate_timing.h"

namespace gate {
namespace {

// A line of variants.txt.
struct Variant {
  std::string tile, epilogue, cubin;
  Epilogue facts;
  int element, block_m, block_n, stages, cluster, pair_along_m, groups, ping_pong, lead, ahead,
      store_columns, store_buffers, checked, threads, shared_bytes;
};

std::vector<Variant> read_variants(const std::string& folder) {
  std::ifstream file(folder + "/variants.txt");
  std::vector<Variant> all;
  for (std::string line; std::getline(file, line);) {
    Variant v;
    std::istringstream in(line);
    in >> v.tile >> v.epilogue >> v.cubin >> v.element >> v.facts.norm >> v.facts.activation >>
        v.facts.scale >> v.facts.residual >> v.facts.moments >> v.block_m >> v.block_n >>
        v.stages >> v.cluster >> v.pair_along_m >> v.groups >> v.ping_pong >> v.lead >> v.ahead >>
        v.store_columns >> v.store_buffers >> v.checked >> v.threads >> v.shared_bytes;
    if (!in) fail("variants.txt", line.c_str(), __LINE__);
    all.push_back(v);
  }
  return all;
}

// Boxes of `rows` rows by `columns` columns of a row-major matrix of bfloat16, swizzled by their
// width.
void encode(unsigned char* map, void* data, int rows, int columns, int box_rows, int box_columns) {
  const cuuint64_t sizes[2] = {cuuint64_t(columns), cuuint64_t(rows)},
                   strides[1] = {cuuint64_t(columns) * 2};
  const cuuint32_t box[2] = {cuuint32_t(box_columns), cuuint32_t(box_rows)}, steps[2] = {1, 1};
  CUtensorMap encoded;
  GATE_CHECK(cuTensorMapEncodeTiled(
      &encoded, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  std::memcpy(map, &encoded, sizeof encoded);
}

// A loaded kernel with all of a launch but the tensors.
class Kernel {
 public:
  Kernel(const std::string& folder, const Variant& variant, Shape shape)
      : v_(variant), shape_(shape) {
    GATE_CHECK(cuModuleLoad(&module_, (folder + "/" + v_.cubin).c_str()));
    GATE_CHECK(cuModuleGetFunction(&function_, module_, "vitune_linear"));
    GATE_CHECK(cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  v_.shared_bytes));
    const int along_m = v_.pair_along_m ? v_.cluster : 1,
              along_n = v_.pair_along_m ? 1 : v_.cluster;
    n_units_ = ceil_div(shape.n, v_.block_n * along_n);
    units_ = n_units_ * ceil_div(shape.m, v_.block_m * along_m);
    grid_ = std::min(units_, max_clusters()) * v_.cluster;
  }
  ~Kernel() { cuModuleUnload(module_); }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  int grid() const { return grid_; }
  int units() const { return units_; }

  // By one call's tensors; `early` lets a launch begin before the one before it has ended.
  void launch(const Tensors& t, cudaStream_t stream, bool early) const {
    vitune::LinearParams p{t.columns, t.rows,   t.moments, shape_.m,
                           shape_.n,  shape_.k, n_units_,  units_};
    vitune::LinearTensorMaps maps;
    const int x_rows = v_.block_m / (v_.pair_along_m ? 1 : v_.cluster);
    const int w_rows = v_.block_n / (v_.pair_along_m ? v_.cluster : 1);
    encode(maps.x, t.x, shape_.m, shape_.k, x_rows, 64);
    encode(maps.w, t.w, shape_.n, shape_.k, w_rows, 64);
    encode(maps.y, t.y, shape_.m, shape_.n, 16, v_.store_columns);
    encode(maps.residual, t.residual, shape_.m, shape_.n, v_.block_m, v_.store_columns);
    void* arguments[] = {&p, &maps};
    CUlaunchAttribute attributes[2];
    CUlaunchConfig config = launch_config(attributes, stream, early);
    GATE_CHECK(cuLaunchKernelEx(&config, function_, arguments, nullptr));
  }

 private:
  static int ceil_div(int a, int b) { return (a + b - 1) / b; }

  CUlaunchConfig launch_config(CUlaunchAttribute (&attributes)[2], cudaStream_t stream,
                               bool early) const {
    std::memset(attributes, 0, sizeof attributes);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[0].value.clusterDim = {unsigned(v_.cluster), 1, 1};
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[1].value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = unsigned(grid_ > 0 ? grid_ : v_.cluster);
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = unsigned(v_.threads);
    config.sharedMemBytes = unsigned(v_.shared_bytes);
    config.hStream = stream;
    config.attrs = attributes;
    config.numAttrs = early ? 2 : 1;
    return config;
  }
  int max_clusters() const {
    CUlaunchAttribute attributes[2];
    CUlaunchConfig config = launch_config(attributes, nullptr, false);
    int clusters = 0;
    GATE_CHECK(cuOccupancyMaxActiveClusters(&clusters, function_, &config));
    if (clusters < 1) fail(v_.cubin.c_str(), "no CTA fits", __LINE__);
    return clusters;
  }

  const Variant& v_;
  Shape shape_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  int n_units_ = 0, units_ = 0, grid_ = 0;
};

struct Verdict {
  bool good = true;
  std::string text;
  void add(bool holds, const std::string& what) {
    good = good && holds;
    text += (text.empty() ? "" : " ") + what + (holds ? "" : "(!)");
  }
};

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// One launch on poisoned outputs against the reference, and what lies behind y.
Verdict judge_once(const Kernel& kernel, const Variant& v, TensorSet& set, Inputs inputs,
                   cudaStream_t stream) {
  set.poison(stream);
  kernel.launch(set.tensors(), stream, false);
  const Found found = set.compared(stream, inputs, v.facts.moments ? v.block_n : 0);
  Verdict verdict;
  if (found.not_finite)
    verdict.add(false, formatted("%.0f elements not finite", double(found.not_finite)));
  if (inputs == Inputs::kRandom) {
    const double relative = std::sqrt(found.error / found.norm);
    double largest;
    std::memcpy(&largest, &found.largest, sizeof largest);
    verdict.add(relative < 2.2e-3,
                formatted("rel %.2e", relative) + formatted(" max %.1e", largest));
  } else if (inputs == Inputs::kIntegers) {
    verdict.add(found.not_bitwise == 0, formatted("ints %.0f off", double(found.not_bitwise)));
  } else {
    verdict.add(found.off_grid == 0, formatted("grid %.0f off", double(found.off_grid)));
  }
  if (v.facts.moments)
    verdict.add(found.bad_moments == 0, formatted("moments %.0f off", double(found.bad_moments)));
  if (!set.guard_intact(stream)) verdict.add(false, "wrote behind y");
  return verdict;
}

// Twenty more launches give the same bits.
Verdict judge_repeats(const Kernel& kernel, TensorSet& set, cudaStream_t stream) {
  set.keep_answer(stream);
  unsigned long long differences = 0;
  for (int i = 0; i < 20; ++i) {
    set.poison(stream);
    kernel.launch(set.tensors(), stream, i % 2 == 1);
    differences += set.differences(stream);
  }
  Verdict verdict;
  verdict.add(differences == 0, formatted("repeats %.0f off", double(differences)));
  return verdict;
}

const Variant* find(const std::vector<Variant>& all, const std::string& tile,
                    const std::string& epilogue, int checked) {
  for (const Variant& v : all) {
    if (v.tile == tile && v.epilogue == epilogue && v.checked == checked) return &v;
  }
  return nullptr;
}

std::string times_of(const Kernel& kernel, const Problem& problem, const Variant& v, TensorSet& set,
                     cudaStream_t stream) {
  const double flops = 2.0 * problem.shape.m * problem.shape.n * problem.shape.k;
  const Tensors t = set.tensors();
  const Time plain = time_calls(stream, 15, [&](int) { kernel.launch(t, stream, false); });
  const Time early = time_calls(stream, 15, [&](int) { kernel.launch(t, stream, true); });
  std::string text = formatted("| warm %.2f us", plain.median) +
                     formatted(" (least %.2f)", plain.least) +
                     formatted(" early %.2f us", early.median) +
                     formatted(" %.0f TF/s", flops / early.median * 1e-6);
  if (problem.sets > 1) {
    std::vector<TensorSet> more;
    for (int i = 1; i < problem.sets; ++i)
      more.emplace_back(problem.shape, v.facts, Inputs::kRandom, 100u + i, stream);
    const Time rotated = time_calls(stream, 15, [&](int i) {
      const int at = i % problem.sets;
      kernel.launch(at == 0 ? t : more[at - 1].tensors(), stream, true);
    });
    text += formatted(" rotated %.2f us", rotated.median);
  }
  return text;
}

// The line of a problem.
void run_problem(const std::string& folder, const std::vector<Variant>& all,
                 const std::string& tile, const Problem& p, cudaStream_t stream) {
  const Variant* variants[2] = {find(all, tile, p.epilogue, 1), find(all, tile, p.epilogue, 0)};
  if (!variants[0] || !variants[1] || (p.shape.k + 63) / 64 < variants[0]->ahead) return;
  std::vector<Inputs> inputs = {variants[0]->facts.activation ? Inputs::kGrid : Inputs::kIntegers,
                                Inputs::kRandom};
  if (p.shape.m > 10000) inputs.erase(inputs.begin());
  Verdict verdict;
  std::string times, launch;
  for (size_t i = 0; i < inputs.size() && verdict.good; ++i) {
    TensorSet set(p.shape, variants[0]->facts, inputs[i], 1u + unsigned(i), stream);
    set.make_reference(stream);
    for (const Variant* v : variants) {
      const Kernel kernel(folder, *v, p.shape);
      launch =
          " grid " + std::to_string(kernel.grid()) + " units " + std::to_string(kernel.units());
      const Verdict one = judge_once(kernel, *v, set, inputs[i], stream);
      verdict.add(one.good, one.text);
      if (!verdict.good) break;
      if (v->checked || i + 1 < inputs.size()) continue;
      const Verdict repeats = judge_repeats(kernel, set, stream);
      verdict.add(repeats.good, repeats.text);
      if (verdict.good && p.timed) times = times_of(kernel, p, *v, set, stream);
    }
  }
  std::printf("K %-24s %-9s %-15s %-16s %s%s [%s] %s\n", tile.c_str(), p.name,
              text_of(p.shape).c_str(), p.epilogue, verdict.good ? "OK" : "WRONG", launch.c_str(),
              verdict.text.c_str(), times.c_str());
  std::fflush(stdout);
}

// Brings the clocks up: half a second of products' worth of work would heat, a few milliseconds do.
void warm_up(cudaStream_t stream) {
  TensorSet set({4096, 2048, 512}, {}, Inputs::kRandom, 9u, stream);
  for (int i = 0; i < 3; ++i) set.make_reference(stream);
  GATE_CHECK(cudaStreamSynchronize(stream));
}

int run_tile(const std::string& folder, const std::string& tile, int first,
             const std::string& progress, cudaStream_t stream) {
  const std::vector<Variant> all = read_variants(folder);
  const std::vector<Problem> asked = problems();
  warm_up(stream);
  for (int i = first; i < int(asked.size()); ++i) {
    std::ofstream(progress) << i << "\n";
    run_problem(folder, all, tile, asked[i], stream);
  }
  std::ofstream(progress) << "done\n";
  return 0;
}

int show_device() {
  cudaDeviceProp properties;
  int clock = 0, major = 0;
  GATE_CHECK(cudaGetDeviceProperties(&properties, 0));
  GATE_CHECK(cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, 0));
  GATE_CHECK(cudaDriverGetVersion(&major));
  std::printf("D %s, %d SMs, %d MHz at most, %.0f MB of L2, driver for CUDA %d\n", properties.name,
              properties.multiProcessorCount, clock / 1000, properties.l2CacheSize / 1048576.0,
              major);
  return 0;
}

int run(int count, char** arguments) {
  const std::string verb = count > 1 ? arguments[1] : "";
  GATE_CHECK(cuInit(0));
  GATE_CHECK(cudaSetDevice(0));
  GATE_CHECK(cudaFree(nullptr));
  cudaStream_t stream;
  GATE_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  if (verb == "device") return show_device();
  if (verb == "tile" && count == 6) {
    return run_tile(arguments[2], arguments[3], std::atoi(arguments[4]), arguments[5], stream);
  }
  if (verb == "cublaslt" && count == 3) {
    warm_up(stream);
    return run_cublaslt(arguments[2], stream);
  }
  std::fprintf(stderr,
               "usage: linear_gate device | tile FOLDER TILE FIRST PROGRESS | cublaslt LIBRARY\n");
  return 2;
}

}  // namespace
}  // namespace gate

int main(int count, char** arguments) { return gate::run(count, arguments); }
