// tests/generator/fake_cublaslt.cpp -- A libcublasLt.so whose products are plain loops on the host,
// for tests without a GPU.
//
// On the emulated device its work takes its place in the stream, graphs included; else it is done
// at once on host memory. VITUNE_FAKE_VERSION is the version it says it has. It proposes, in this
// order: a slow algorithm; a fast one that needs a workspace, which it fills; the fastest, which is
// wrong in each row's last element; and one that its own state declares impossible. With
// VITUNE_FAKE_REFUSES it takes none of them back.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "generator/cublaslt_api.h"

namespace {

using Api = vitune::CublasLtApi;

constexpr int kInvalidValue = 7, kExecutionFailed = 13;
constexpr std::uint64_t kSlow = 0x4201, kFast = 0x4202, kWrong = 0x4203, kImpossible = 0x4204;
// A word with its highest bit set, as bit fields may have.
constexpr std::uint64_t kMark = 0xfedcba9876543210;
constexpr std::uint64_t kWorkspaceBytes = 1000;

struct Matrix {
  std::uint64_t type, rows, columns;
  std::int64_t stride;
};
struct Product {
  std::uint64_t transpose_a, transpose_b, epilogue, bias, bias_type, compute_type, scale_type;
};
struct Wishes {
  std::uint64_t workspace, reductions, alignments[4];
};

template <class Value, class Opaque>
Value read(const Opaque* opaque) {
  static_assert(sizeof(Value) <= sizeof(Opaque));
  Value value;
  std::memcpy(&value, opaque, sizeof(value));
  return value;
}

template <class Value, class Opaque>
int write(Opaque* opaque, const Value& value) {
  std::memset(opaque, 0, sizeof(*opaque));
  std::memcpy(opaque, &value, sizeof(value));
  return Api::kSuccess;
}

// Everything that a call needs, copied when it is made.
struct Work {
  Product product;
  Matrix a_layout, b_layout, c_layout, d_layout;
  const void *a, *b, *c;
  void *d, *workspace;
  float alpha, beta;
  std::uint64_t algorithm;
};

double element(const void* data, std::uint64_t type, std::int64_t at) {
  if (type == Api::kFp32) return static_cast<const float*>(data)[at];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[at];
  if (type == Api::kFp16) {
    _Float16 half;
    std::memcpy(&half, &bits, sizeof(half));
    return static_cast<double>(half);
  }
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

void store(void* data, std::uint64_t type, std::int64_t at, float value) {
  if (type == Api::kFp32) {
    static_cast<float*>(data)[at] = value;
    return;
  }
  std::uint16_t bits;
  if (type == Api::kFp16) {
    const _Float16 half = static_cast<_Float16>(value);
    std::memcpy(&bits, &half, sizeof(bits));
  } else {
    std::uint32_t wide;
    std::memcpy(&wide, &value, sizeof(wide));
    bits = static_cast<std::uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  }
  static_cast<std::uint16_t*>(data)[at] = bits;
}

double activated(double x, std::uint64_t epilogue) {
  if ((epilogue & Api::kRelu) != 0) return x > 0 ? x : 0;
  if ((epilogue & Api::kGelu) == 0) return x;
  return 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

void multiply(const void* data) {
  const Work& w = *static_cast<const Work*>(data);
  if (w.algorithm == kFast) std::memset(w.workspace, 0xa5, kWorkspaceBytes);
  const auto rows = static_cast<std::int64_t>(w.d_layout.rows);
  const auto columns = static_cast<std::int64_t>(w.d_layout.columns);
  const bool is_b_transposed = w.product.transpose_b != 0;
  const auto depth =
      static_cast<std::int64_t>(is_b_transposed ? w.b_layout.columns : w.b_layout.rows);
  const auto b_of = [&](std::int64_t k, std::int64_t column) {
    const std::int64_t at =
        is_b_transposed ? column + k * w.b_layout.stride : k + column * w.b_layout.stride;
    return element(w.b, w.b_layout.type, at);
  };
  for (std::int64_t column = 0; column < columns; ++column) {
    if ((w.product.epilogue & Api::kSumsOfB) != 0) {
      double sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) sum += b_of(k, column);
      store(reinterpret_cast<void*>(w.product.bias), w.product.bias_type, column,
            static_cast<float>(sum));
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        const std::int64_t a_at =
            w.product.transpose_a != 0 ? k + row * w.a_layout.stride : row + k * w.a_layout.stride;
        sum += element(w.a, w.a_layout.type, a_at) * b_of(k, column);
      }
      sum *= w.alpha;
      if (w.beta != 0)
        sum += w.beta * element(w.c, w.c_layout.type, row + column * w.c_layout.stride);
      if ((w.product.epilogue & Api::kBias) != 0) {
        sum += element(reinterpret_cast<const void*>(w.product.bias), w.product.bias_type, row);
      }
      if (w.algorithm == kWrong && row + 1 == rows) sum += 1;
      store(w.d, w.d_layout.type, row + column * w.d_layout.stride,
            static_cast<float>(activated(sum, w.product.epilogue)));
    }
  }
}

double microseconds(std::uint64_t algorithm) {
  return algorithm == kSlow ? 1.5 : algorithm == kFast ? 0.5 : 0.25;
}

// The device's own, if it is the emulated one.
template <class Function>
Function of_device(const char* name) {
  void* const cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function>(cuda != nullptr ? dlsym(cuda, name) : nullptr);
}

int enqueue(const Work& work, vitune::CuStreamTag* stream) {
  using HostCall =
      int (*)(vitune::CuStreamTag*, void (*)(const void*), const void*, std::size_t, double);
  static const auto call = of_device<HostCall>("vitune_emulated_host_call");
  if (call != nullptr) {
    const int result = call(stream, multiply, &work, sizeof(work), microseconds(work.algorithm));
    return result == 0 ? Api::kSuccess : kExecutionFailed;
  }
  multiply(&work);
  return Api::kSuccess;
}

// True if layouts and operation belong together.
bool fits(const Product& p, const Matrix& a, const Matrix& b, const Matrix& c, const Matrix& d) {
  const std::uint64_t depth = p.transpose_a != 0 ? a.rows : a.columns;
  const std::uint64_t rows = p.transpose_a != 0 ? a.columns : a.rows;
  const auto dense = [](const Matrix& m) {
    return m.stride >= static_cast<std::int64_t>(m.rows) || m.columns == 1;
  };
  const bool is_b_transposed = p.transpose_b != 0;
  return p.compute_type == Api::kCompute32F && p.scale_type == Api::kFp32 &&
         depth == (is_b_transposed ? b.columns : b.rows) && rows == d.rows &&
         (is_b_transposed ? b.rows : b.columns) == d.columns && c.rows == d.rows &&
         c.columns == d.columns && a.type == b.type && c.type == d.type && dense(a) && dense(b) &&
         dense(c) && dense(d) &&
         ((p.epilogue & (Api::kBias | Api::kSumsOfB)) == 0 || p.bias_type == d.type);
}

Api::Proposal proposal(std::uint64_t id, std::uint64_t workspace, int state) {
  Api::Proposal made = {};
  made.algorithm.data[0] = id;
  made.algorithm.data[5] = kMark;
  made.workspace_bytes = workspace;
  made.state = state;
  return made;
}

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() { return VITUNE_FAKE_VERSION; }
const char* cublasLtGetStatusName(int status) {
  return status == Api::kNotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == kInvalidValue    ? "CUBLAS_STATUS_INVALID_VALUE"
                                      : "CUBLAS_STATUS_EXECUTION_FAILED";
}
int cublasLtCreate(Api::Handle* handle) {
  return *handle = reinterpret_cast<Api::Handle>(new char), Api::kSuccess;
}
int cublasLtDestroy(Api::Handle handle) {
  delete reinterpret_cast<char*>(handle);
  return Api::kSuccess;
}
int cublasLtMatrixLayoutInit_internal(Api::Layout* layout, std::size_t size, int type,
                                      std::uint64_t rows, std::uint64_t columns,
                                      std::int64_t stride) {
  if (size != sizeof(*layout)) return kInvalidValue;
  return write(layout, Matrix{static_cast<std::uint64_t>(type), rows, columns, stride});
}
int cublasLtMatmulDescInit_internal(Api::Operation* operation, std::size_t size, int compute_type,
                                    int scale_type) {
  if (size != sizeof(*operation)) return kInvalidValue;
  Product product = {};
  product.epilogue = Api::kPlain;
  product.compute_type = static_cast<std::uint64_t>(compute_type);
  product.scale_type = static_cast<std::uint64_t>(scale_type);
  return write(operation, product);
}
int cublasLtMatmulDescSetAttribute(Api::Operation* operation, int attribute, const void* value,
                                   std::size_t size) {
  auto product = read<Product>(operation);
  const auto set = [&](std::uint64_t& member, std::size_t bytes) {
    if (size != bytes) return kInvalidValue;
    member = 0;
    std::memcpy(&member, value, bytes);
    return write(operation, product);
  };
  switch (attribute) {
    case Api::kTransposeA:
      return set(product.transpose_a, 4);
    case Api::kTransposeB:
      return set(product.transpose_b, 4);
    case Api::kEpilogue:
      return set(product.epilogue, 4);
    case Api::kBiasPointer:
      return set(product.bias, 8);
    case Api::kBiasType:
      return set(product.bias_type, 4);
    default:
      return kInvalidValue;
  }
}
int cublasLtMatmulPreferenceInit_internal(Api::Preference* preference, std::size_t size) {
  if (size != sizeof(*preference)) return kInvalidValue;
  return write(preference, Wishes{0, 7, {256, 256, 256, 256}});
}
int cublasLtMatmulPreferenceSetAttribute(Api::Preference* preference, int attribute,
                                         const void* value, std::size_t size) {
  auto wishes = read<Wishes>(preference);
  std::uint64_t* member = nullptr;
  if (attribute == Api::kMostWorkspace) member = &wishes.workspace;
  if (attribute == Api::kReductionMask) member = &wishes.reductions;
  if (attribute >= Api::kAlignmentA && attribute <= Api::kAlignmentD) {
    member = &wishes.alignments[attribute - Api::kAlignmentA];
  }
  if (member == nullptr || size != (member == &wishes.workspace ? 8u : 4u)) return kInvalidValue;
  *member = 0;
  std::memcpy(member, value, size);
  return write(preference, wishes);
}
int cublasLtMatmulAlgoGetHeuristic(Api::Handle, Api::Operation* operation, Api::Layout* a,
                                   Api::Layout* b, Api::Layout* c, Api::Layout* d,
                                   Api::Preference* preference, int most, Api::Proposal* found,
                                   int* count) {
  const auto wishes = read<Wishes>(preference);
  *count = 0;
  if (wishes.reductions != Api::kReduceInComputeType) return kInvalidValue;
  if (!fits(read<Product>(operation), read<Matrix>(a), read<Matrix>(b), read<Matrix>(c),
            read<Matrix>(d))) {
    return Api::kNotSupported;
  }
  const Api::Proposal all[] = {
      proposal(kSlow, 0, Api::kSuccess), proposal(kFast, kWorkspaceBytes, Api::kSuccess),
      proposal(kWrong, 0, Api::kSuccess), proposal(kImpossible, 0, Api::kNotSupported)};
  for (const Api::Proposal& each : all) {
    if (*count < most && each.workspace_bytes <= wishes.workspace) found[(*count)++] = each;
  }
  return Api::kSuccess;
}
int cublasLtMatmulAlgoCheck(Api::Handle, Api::Operation* operation, Api::Layout* a, Api::Layout* b,
                            Api::Layout* c, Api::Layout* d, const Api::Algorithm* algorithm,
                            Api::Proposal* result) {
#ifdef VITUNE_FAKE_REFUSES
  return Api::kNotSupported;
#endif
  const std::uint64_t id = algorithm->data[0];
  const bool known = id >= kSlow && id <= kWrong && algorithm->data[5] == kMark;
  if (!known || !fits(read<Product>(operation), read<Matrix>(a), read<Matrix>(b), read<Matrix>(c),
                      read<Matrix>(d))) {
    return Api::kNotSupported;
  }
  *result = proposal(id, id == kFast ? kWorkspaceBytes : 0, Api::kSuccess);
  return Api::kSuccess;
}
int cublasLtMatmul(Api::Handle handle, Api::Operation* operation, const void* alpha, const void* a,
                   Api::Layout* a_layout, const void* b, Api::Layout* b_layout, const void* beta,
                   const void* c, Api::Layout* c_layout, void* d, Api::Layout* d_layout,
                   const Api::Algorithm* algorithm, void* workspace, std::size_t workspace_bytes,
                   vitune::CuStreamTag* stream) {
  Api::Proposal checked;
  const int status = cublasLtMatmulAlgoCheck(handle, operation, a_layout, b_layout, c_layout,
                                             d_layout, algorithm, &checked);
  if (status != Api::kSuccess) return status;
  if (checked.workspace_bytes > workspace_bytes || (workspace_bytes > 0 && workspace == nullptr)) {
    return kInvalidValue;
  }
  Work work = {};
  work.product = read<Product>(operation);
  work.a_layout = read<Matrix>(a_layout);
  work.b_layout = read<Matrix>(b_layout);
  work.c_layout = read<Matrix>(c_layout);
  work.d_layout = read<Matrix>(d_layout);
  work.a = a;
  work.b = b;
  work.c = c;
  work.d = d;
  work.workspace = workspace;
  work.alpha = *static_cast<const float*>(alpha);
  work.beta = *static_cast<const float*>(beta);
  work.algorithm = algorithm->data[0];
  return enqueue(work, stream);
}

}  // extern "C"
