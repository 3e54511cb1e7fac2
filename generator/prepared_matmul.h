// generator/prepared_matmul.h -- Products by cuBLASLt: what it proposes, and one that is ready to
// be called any number of times.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/cublaslt.h"
#include "generator/launch_plan.h"

namespace vitune {

// Of a tensor to come; only its alignment counts.
inline constexpr std::uintptr_t kNoAddress = 4096;

// The algorithms that the library expects most of for `call`, the best first, at most `most`; none
// where it cannot do it. Only those that add in fp32 and in a fixed order.
std::vector<MatmulAlgorithm> proposed_algorithms(const MatmulCall& call,
                                                 const CublasLtHandle& library, int most);

// Immutable; any thread may launch it.
class PreparedMatmul {
 public:
  // Throws Error(kUnsupported) with the reason if the library is of another version than the call's
  // algorithm or refuses it.
  PreparedMatmul(const MatmulCall& call, std::shared_ptr<const CublasLtHandle> library);

  // As PreparedPlan::launch(); gives the library's status.
  int launch(std::span<const std::uintptr_t> addresses, std::uintptr_t scratch,
             CuStreamTag* stream) const noexcept;
  // Throws Error(kFailure) with the library's word for `status`.
  [[noreturn]] void fail(int status) const;

 private:
  struct Place {
    int tensor = 0;
    std::uintptr_t offset = 0;

    std::uintptr_t address(std::span<const std::uintptr_t> addresses,
                           std::uintptr_t scratch) const noexcept {
      return (tensor >= 0 ? addresses[static_cast<std::size_t>(tensor)] : scratch) + offset;
    }
  };
  static Place place_of(const MatrixSlot& slot);

  std::shared_ptr<const CublasLtHandle> library_;
  CublasLtApi::Operation operation_;
  CublasLtApi::Layout a_layout_, b_layout_, c_layout_, d_layout_;
  CublasLtApi::Algorithm algorithm_;
  Place a_, b_, c_, d_, workspace_;  // c is d where nothing is added
  std::optional<Place> bias_;        // or the sums of b
  float beta_ = 0;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace vitune
