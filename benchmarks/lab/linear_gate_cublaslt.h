// benchmarks/lab/linear_gate_cublaslt.h -- The products of the linear gate by cuBLASLt, opened at
// run time.
//
// The eight algorithms that its heuristic puts first are timed; the fastest is timed again and
// reported. LayerNorm and LayerScale are left out, GELU is its tanh form: it has no other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>
#include <dlfcn.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "benchmarks/lab/linear_gate_problems.h"
#include "benchmarks/lab/linear_gate_tensors.h"
#include "benchmarks/lab/linear_gate_timing.h"

namespace gate {

// The entry points that are used; ends the program where one is missing.
struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algo_get;

  explicit CublasLt(const char* path) {
    void* library = dlopen(path, RTLD_NOW);
    if (!library) fail("dlopen", dlerror(), __LINE__);
    bind(library, "cublasLtCreate", create);
    bind(library, "cublasLtGetVersion", version);
    bind(library, "cublasLtMatmul", matmul);
    bind(library, "cublasLtMatmulDescCreate", desc_create);
    bind(library, "cublasLtMatmulDescSetAttribute", desc_set);
    bind(library, "cublasLtMatmulDescDestroy", desc_destroy);
    bind(library, "cublasLtMatrixLayoutCreate", layout_create);
    bind(library, "cublasLtMatrixLayoutDestroy", layout_destroy);
    bind(library, "cublasLtMatmulPreferenceCreate", preference_create);
    bind(library, "cublasLtMatmulPreferenceSetAttribute", preference_set);
    bind(library, "cublasLtMatmulAlgoGetHeuristic", heuristic);
    bind(library, "cublasLtMatmulAlgoConfigGetAttribute", algo_get);
  }

 private:
  template <class Function>
  static void bind(void* library, const char* name, Function& to) {
    to = reinterpret_cast<Function>(dlsym(library, name));
    if (!to) fail("dlsym", name, __LINE__);
  }
};

inline void check_lt(cublasStatus_t status, const char* what, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(what, std::to_string(int(status)).c_str(), line);
}
#define GATE_CHECK_LT(call) ::gate::check_lt((call), #call, __LINE__)

// What is fused into a product.
struct LtMode {
  const char* name;
  cublasLtEpilogue_t epilogue;
  float beta;  // 1 = the residual is added
};

// y^T [n, m] = w^T x^T in the column-major order of cuBLAS, one mode of one shape.
class LtProduct {
 public:
  static constexpr size_t kWorkspace = 32u << 20;

  LtProduct(const CublasLt& lt, cublasLtHandle_t handle, Shape s, const LtMode& mode,
            const Tensors& t, const u16* bias, void* workspace)
      : lt_(lt), handle_(handle), t_(t), workspace_(workspace), beta_(mode.beta) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    GATE_CHECK_LT(lt.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    GATE_CHECK_LT(lt.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    GATE_CHECK_LT(
        lt.desc_set(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, &mode.epilogue, sizeof mode.epilogue));
    if (mode.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
      GATE_CHECK_LT(lt.desc_set(desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
    GATE_CHECK_LT(lt.layout_create(&w_, CUDA_R_16BF, s.k, s.n, s.k));
    GATE_CHECK_LT(lt.layout_create(&x_, CUDA_R_16BF, s.k, s.m, s.k));
    GATE_CHECK_LT(lt.layout_create(&y_, CUDA_R_16BF, s.n, s.m, s.n));
  }
  ~LtProduct() {
    lt_.desc_destroy(desc_);
    for (cublasLtMatrixLayout_t layout : {w_, x_, y_}) lt_.layout_destroy(layout);
  }
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  std::vector<cublasLtMatmulHeuristicResult_t> algorithms(int most) const {
    cublasLtMatmulPreference_t preference;
    const size_t workspace = kWorkspace;
    GATE_CHECK_LT(lt_.preference_create(&preference));
    GATE_CHECK_LT(lt_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                     &workspace, sizeof workspace));
    std::vector<cublasLtMatmulHeuristicResult_t> found(most);
    int count = 0;
    if (lt_.heuristic(handle_, desc_, w_, x_, y_, y_, preference, most, found.data(), &count) !=
        CUBLAS_STATUS_SUCCESS) {
      count = 0;
    }
    found.resize(count);
    return found;
  }
  cublasStatus_t enqueue(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) const {
    const float alpha = 1.f;
    return lt_.matmul(handle_, desc_, &alpha, t_.w, w_, t_.x, x_, &beta_,
                      beta_ != 0.f ? t_.residual : t_.y, y_, t_.y, y_, &algorithm, workspace_,
                      kWorkspace, stream);
  }

 private:
  const CublasLt& lt_;
  cublasLtHandle_t handle_;
  Tensors t_;
  void* workspace_;
  float beta_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, y_ = nullptr;
};

static __global__ void bias_of(u16* bias, const LinearColumns* columns, int n) {
  GATE_FOR_EACH(i, size_t(n)) bias[i] = to_bf16(columns[i / 2].addend[i % 2]);
}

// The line of one mode of one shape.
inline void run_lt_mode(const CublasLt& lt, cublasLtHandle_t handle, const char* name, Shape s,
                        const LtMode& mode, void* workspace, u16* bias, cudaStream_t stream) {
  const bool gelu = mode.epilogue == CUBLASLT_EPILOGUE_GELU_BIAS,
             biased = mode.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  TensorSet set(s, {0, gelu, 0, mode.beta != 0.f, 0}, Inputs::kRandom, 7u, stream);
  bias_of<<<16, 128, 0, stream>>>(bias, set.tensors().columns, s.n);
  GATE_CHECK(cudaGetLastError());
  const LtProduct product(lt, handle, s, mode, set.tensors(), bias, workspace);
  const auto found = product.algorithms(8);
  int best = -1;
  double least = 1e30;
  for (int i = 0; i < int(found.size()); ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS ||
        product.enqueue(found[i].algo, stream) != CUBLAS_STATUS_SUCCESS)
      continue;
    GATE_CHECK(cudaStreamSynchronize(stream));
    const Time time =
        time_calls(stream, 5, [&](int) { GATE_CHECK_LT(product.enqueue(found[i].algo, stream)); });
    if (time.median < least) least = time.median, best = i;
  }
  if (best < 0) {
    std::printf("L %-9s %-14s no algorithm\n", name, mode.name);
    return;
  }
  const Time time = time_calls(
      stream, 15, [&](int) { GATE_CHECK_LT(product.enqueue(found[best].algo, stream)); });
  std::string judged = "not compared";
  if (biased) {  // its bias is rounded, its GELU the tanh form
    set.make_reference(stream);
    const Found difference = set.compared(stream, Inputs::kRandom, 0);
    const double relative = std::sqrt(difference.error / difference.norm);
    judged = (difference.not_finite == 0 && relative < 4e-3 ? "rel " : "WRONG rel ") +
             std::to_string(relative);
  }
  int tile = 0, stages = 0, split = 0;
  size_t written = 0;
  lt.algo_get(&found[best].algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written);
  lt.algo_get(&found[best].algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages, sizeof stages, &written);
  lt.algo_get(&found[best].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, &written);
  std::printf(
      "L %-9s %-15s %-14s %s | warm %.2f us (least %.2f) %.0f TF/s | number %d of %d, tile id %d, "
      "stages id "
      "%d, split %d\n",
      name, text_of(s).c_str(), mode.name, judged.c_str(), time.median, time.least,
      2.0 * s.m * s.n * s.k / time.median * 1e-6, best, int(found.size()), tile, stages, split);
  std::fflush(stdout);
}

inline int run_cublaslt(const char* path, cudaStream_t stream) {
  const CublasLt lt(path);
  cublasLtHandle_t handle;
  GATE_CHECK_LT(lt.create(&handle));
  std::printf("L cuBLASLt %zu from %s\n", lt.version(), path);
  void* workspace;
  u16* bias;
  GATE_CHECK(cudaMalloc(&workspace, LtProduct::kWorkspace));
  GATE_CHECK(cudaMalloc(&bias, 8192 * sizeof(u16)));
  const LtMode modes[] = {{"plain", CUBLASLT_EPILOGUE_DEFAULT, 0.f},
                          {"bias", CUBLASLT_EPILOGUE_BIAS, 0.f},
                          {"bias+gelu_tanh", CUBLASLT_EPILOGUE_GELU_BIAS, 0.f},
                          {"residual", CUBLASLT_EPILOGUE_DEFAULT, 1.f},
                          {"bias+residual", CUBLASLT_EPILOGUE_BIAS, 1.f}};
  const char* last = "";
  for (const Problem& p : problems()) {
    if (!p.timed || std::strcmp(p.name, last) == 0 ||
        std::strcmp(p.epilogue, "residual_moments") == 0)
      continue;
    // Each shape once: problems of a batch come with their own epilogue first.
    if (std::strcmp(p.epilogue, "bias") == 0 && std::strcmp(p.name, "b32_long") != 0) continue;
    last = p.name;
    for (const LtMode& mode : modes) {
      const bool fc1 = std::strstr(p.name, "fc1") != nullptr;
      const bool added = std::strstr(p.name, "proj") || std::strstr(p.name, "fc2");
      if ((mode.epilogue == CUBLASLT_EPILOGUE_GELU_BIAS && !fc1) || (mode.beta != 0.f && !added))
        continue;
      run_lt_mode(lt, handle, p.name, p.shape, mode, workspace, bias, stream);
    }
  }
  return 0;
}

}  // namespace gate
