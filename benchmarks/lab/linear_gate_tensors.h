// benchmarks/lab/linear_gate_tensors.h -- The device memory of a problem of the linear gate.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "benchmarks/lab/linear_gate_data.cuh"
#include "benchmarks/lab/linear_gate_timing.h"

namespace gate {

// Filled at construction; inputs end in NaN, y in bytes that nobody may write.
class TensorSet {
 public:
  TensorSet(Shape shape, Epilogue epilogue, Inputs inputs, unsigned seed, cudaStream_t stream)
      : shape_(shape), epilogue_(epilogue) {
    const size_t guard = kGuard;
    t_.x = take<u16>((shape.m + guard) * shape.k);
    t_.w = take<u16>((shape.n + guard) * shape.k);
    t_.residual = take<u16>((shape.m + guard) * shape.n);
    t_.y = take<u16>(elements() + guard);
    t_.columns = take<LinearColumns>((shape.n + guard) / 2);
    t_.rows = take<LinearRow>(shape.m + guard);
    t_.moments = take<LinearMoments>(size_t(shape.m) * (shape.n / 32 + 1));
    found_ = take<Found>(1);
    fill_matrix<<<1024, 256, 0, stream>>>(t_.x, shape.m, shape.k, inputs, false, 1.f, seed);
    fill_matrix<<<1024, 256, 0, stream>>>(t_.w, shape.n, shape.k, inputs, true, 0.05f, seed + 1000);
    fill_matrix<<<1024, 256, 0, stream>>>(t_.residual, shape.m, shape.n,
                                          inputs == Inputs::kGrid ? Inputs::kRandom : inputs, false,
                                          1.f, seed + 2000);
    fill_columns<<<64, 64, 0, stream>>>(t_.columns, t_.w, shape, epilogue, inputs, seed + 3000);
    fill_rows<<<256, 128, 0, stream>>>(t_.rows, t_.x, shape, inputs, seed + 4000);
    GATE_CHECK(cudaGetLastError());
    poison(stream);
  }
  ~TensorSet() {
    for (void* block : blocks_) cudaFree(block);
  }
  TensorSet(TensorSet&& other) noexcept
      : shape_(other.shape_),
        epilogue_(other.epilogue_),
        t_(other.t_),
        found_(other.found_),
        kept_(other.kept_),
        blocks_(std::exchange(other.blocks_, {})) {}
  TensorSet& operator=(TensorSet&&) = delete;

  const Tensors& tensors() const { return t_; }

  void make_reference(cudaStream_t stream) {
    if (!t_.reference) t_.reference = take<double>(elements());
    const dim3 grid((shape_.n + 63) / 64, (shape_.m + 63) / 64);
    reference<<<grid, 256, 0, stream>>>(t_, shape_, epilogue_);
    GATE_CHECK(cudaGetLastError());
  }

  // Fills y, what is behind it and the moments with NaN.
  void poison(cudaStream_t stream) {
    GATE_CHECK(cudaMemsetAsync(t_.y, 0xff, (elements() + kGuard) * sizeof(u16), stream));
    GATE_CHECK(cudaMemsetAsync(
        t_.moments, 0xff, size_t(shape_.m) * (shape_.n / 32 + 1) * sizeof(LinearMoments), stream));
  }
  // y against the reference; moments of tiles of that many columns too, unless 0.
  Found compared(cudaStream_t stream, Inputs inputs, int moments_of) {
    GATE_CHECK(cudaMemsetAsync(found_, 0, sizeof(Found), stream));
    compare<<<1024, 256, 0, stream>>>(t_, shape_, inputs == Inputs::kGrid, found_);
    if (moments_of) compare_moments<<<256, 128, 0, stream>>>(t_, shape_, moments_of, found_);
    return found(stream);
  }
  bool guard_intact(cudaStream_t stream) const {
    u16 behind[kGuard];
    GATE_CHECK(
        cudaMemcpyAsync(behind, t_.y + elements(), sizeof behind, cudaMemcpyDeviceToHost, stream));
    GATE_CHECK(cudaStreamSynchronize(stream));
    for (u16 value : behind) {
      if (value != 0xffff) return false;
    }
    return true;
  }
  void keep_answer(cudaStream_t stream) {
    if (!kept_) kept_ = take<u16>(elements());
    GATE_CHECK(
        cudaMemcpyAsync(kept_, t_.y, elements() * sizeof(u16), cudaMemcpyDeviceToDevice, stream));
  }
  // Words of y that differ from the kept answer; n is even.
  unsigned long long differences(cudaStream_t stream) {
    GATE_CHECK(cudaMemsetAsync(found_, 0, sizeof(Found), stream));
    count_differences<<<512, 256, 0, stream>>>(reinterpret_cast<unsigned*>(t_.y),
                                               reinterpret_cast<unsigned*>(kept_), elements() / 2,
                                               found_);
    return found(stream).not_bitwise;
  }

 private:
  size_t elements() const { return size_t(shape_.m) * shape_.n; }

  template <class Value>
  Value* take(size_t count) {
    void* block = nullptr;
    GATE_CHECK(cudaMalloc(&block, count * sizeof(Value)));
    blocks_.push_back(block);
    return static_cast<Value*>(block);
  }
  Found found(cudaStream_t stream) const {
    Found result;
    GATE_CHECK(cudaGetLastError());
    GATE_CHECK(cudaMemcpyAsync(&result, found_, sizeof result, cudaMemcpyDeviceToHost, stream));
    GATE_CHECK(cudaStreamSynchronize(stream));
    return result;
  }

  Shape shape_;
  Epilogue epilogue_;
  Tensors t_{};
  Found* found_ = nullptr;
  u16* kept_ = nullptr;
  std::vector<void*> blocks_;
};

}  // namespace gate
