// tests/runtime/attention_call.h -- A problem with tensors on the GPU, to be asked of libvitune and
// held against the CPU. One thread at a time per object, with its CUDA context current.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/cuda_driver.h"
#include "tests/runtime/cpu_attention.h"
#include "tests/runtime/descriptor_fuzzer.h"
#include "vitune/vitune.h"

namespace vitune::test {

class AttentionCall {
 public:
  // Random inputs; equal ones for equal problems and seeds. Pointers are aligned to what the
  // problem says and no better.
  AttentionCall(const CudaDriver& driver, std::string_view text, std::uint64_t seed)
      : host_(AttentionProblem::parse(text), seed), desc_(describe(host_.problem)) {
    const AttentionProblem& p = host_.problem;
    const std::int64_t size = element_bytes(p.dtype);
    q_ = Tensor(driver, p.alignment, host_.q.size(), &host_.q);
    k_ = Tensor(driver, p.alignment, host_.k.size(), &host_.k);
    v_ = Tensor(driver, p.alignment, host_.v.size(), &host_.v);
    out_ = Tensor(driver, p.alignment, static_cast<std::size_t>(p.o_extent() * size));
    if (p.bias) bias_ = Tensor(driver, 16, host_.bias.size(), &host_.bias);
    if (p.mask) mask_ = Tensor(driver, 16, host_.mask.size(), &host_.mask);
    if (p.lse) lse_ = Tensor(driver, 16, static_cast<std::size_t>(4 * p.batch * p.heads * p.nq));
    desc_.alignment = static_cast<std::int32_t>(p.alignment);
    find_gaps();
  }

  const vitune_attention_desc& desc() const { return desc_; }
  const AttentionProblem& problem() const { return host_.problem; }

  vitune_status forward(vitune_context* context, const CudaStream& stream) const {
    return vitune_attention_forward(context, &desc_, q_.data(), k_.data(), v_.data(), bias_.data(),
                                    mask_.data(), out_.data(), static_cast<float*>(lse_.data()),
                                    nullptr, 0, stream.get());
  }

  // Fills what a call writes, and its margins, with a pattern, in stream order.
  void clear(const CudaStream& stream) const {
    for (const Tensor* tensor : {&out_, &lse_}) {
      if (tensor->buffer.size() == 0) continue;
      stream.fill8(tensor->buffer.address(), kPattern, tensor->buffer.size());
    }
  }

  // All bytes of out and lse with their margins, once the stream has finished.
  std::vector<std::byte> output(const CudaStream& stream) const {
    stream.synchronize();
    std::vector<std::byte> bytes(out_.buffer.size() + lse_.buffer.size());
    const std::span all(bytes);
    out_.buffer.download(all.first(out_.buffer.size()));
    if (lse_.buffer.size() > 0) lse_.buffer.download(all.subspan(out_.buffer.size()));
    return bytes;
  }

  // The faults of output() after clear() and a call: bytes that are not the kernel's to write,
  // and the corners and `samples` random rows of the answer. Empty if nothing is.
  std::string what_is_wrong(const std::vector<std::byte>& output, int samples,
                            std::uint64_t seed) const {
    for (const std::size_t at : gaps_) {
      if (output[at] != std::byte{kPattern}) {
        return "byte " + std::to_string(at) + " of the output, which is no result, was written";
      }
    }
    const AttentionProblem& p = host_.problem;
    std::mt19937_64 random(seed);
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    std::string wrong = wrong_row(output, 0, 0, 0);
    if (wrong.empty()) wrong = wrong_row(output, p.batch - 1, p.heads - 1, p.nq - 1);
    for (int i = 0; i < samples && wrong.empty(); ++i) {
      wrong = wrong_row(output, below(p.batch), below(p.heads), below(p.nq));
    }
    return wrong;
  }

 private:
  static constexpr std::uint8_t kPattern = 0xa5;
  static constexpr std::size_t kMargin = 256;  // before and behind each tensor

  struct Tensor {
    DeviceBuffer buffer;
    std::size_t first = 0;  // byte of the buffer where the tensor begins

    Tensor() = default;
    Tensor(const CudaDriver& driver, std::int64_t alignment, std::size_t bytes,
           const std::vector<std::byte>* content = nullptr)
        : buffer(driver, bytes + 2 * kMargin + 16),
          first(kMargin + static_cast<std::size_t>(alignment % 16)) {
      if (content != nullptr) buffer.upload(*content, first);
    }
    void* data() const {
      return buffer.size() == 0 ? nullptr : reinterpret_cast<void*>(buffer.address() + first);
    }
  };

  std::size_t out_byte(std::int64_t b, std::int64_t h, std::int64_t i) const {
    const AttentionProblem& p = host_.problem;
    const std::int64_t index = b * p.o.batch + h * p.o.head + i * p.o.row;
    return out_.first + static_cast<std::size_t>(index * element_bytes(p.dtype));
  }

  void find_gaps() {
    const AttentionProblem& p = host_.problem;
    std::vector<bool> written(out_.buffer.size() + lse_.buffer.size());
    const auto bytes = p.d * element_bytes(p.dtype);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t h = 0; h < p.heads; ++h) {
        for (std::int64_t i = 0; i < p.nq; ++i) {
          std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(out_byte(b, h, i)), bytes,
                      true);
        }
      }
    }
    if (p.lse) {
      std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(out_.buffer.size() + lse_.first),
                  4 * p.batch * p.heads * p.nq, true);
    }
    for (std::size_t i = 0; i < written.size(); ++i) {
      if (!written[i]) gaps_.push_back(i);
    }
  }

  std::string wrong_row(const std::vector<std::byte>& output, std::int64_t b, std::int64_t h,
                        std::int64_t i) const {
    const AttentionProblem& p = host_.problem;
    const CpuAttention::Row expected = host_.row(b, h, i);
    const auto differs = [&](const std::string& what, double is, double should_be, double bound) {
      return what + " of batch " + std::to_string(b) + ", head " + std::to_string(h) + ", row " +
             std::to_string(i) + " is " + std::to_string(is) + ", should be " +
             std::to_string(should_be) + " within " + std::to_string(bound);
    };
    for (std::int64_t e = 0; e < p.d; ++e) {
      const auto at = static_cast<std::size_t>(e);
      const std::size_t byte = out_byte(b, h, i) + at * 2;
      const double is = decode(p.dtype, output.data() + byte);
      if (std::abs(is - expected.out[at]) <= expected.bound[at]) continue;
      return differs("element " + std::to_string(e), is, expected.out[at], expected.bound[at]);
    }
    if (!p.lse) return {};
    const auto index = static_cast<std::size_t>(4 * ((b * p.heads + h) * p.nq + i));
    const double is =
        decode(ElementType::kFp32, output.data() + out_.buffer.size() + lse_.first + index);
    // fp32 sums of up to d products and nk weights.
    const double bound = 0x1p-24 * static_cast<double>(p.d + p.nk) * (4 + std::abs(expected.lse));
    if (is == expected.lse || std::abs(is - expected.lse) <= bound) return {};
    return differs("the log-sum-exp", is, expected.lse, bound);
  }

  CpuAttention host_;
  vitune_attention_desc desc_;
  Tensor q_, k_, v_, out_, bias_, mask_, lse_;
  std::vector<std::size_t> gaps_;  // bytes of output() that no call may write
};

}  // namespace vitune::test
