// tuner/judge/workload.h -- The tensors of one attention problem on the device, laid out as the
// caller's are.
//
// Each tensor lies between two guard zones. Everything that is no element (guards, holes of strided
// views) is poison, all bytes 0xff: a NaN in every floating type, so that a kernel that uses it
// shows. Tensors that are views of one packed allocation share one here too. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/cuda_driver.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/problem.h"
#include "tuner/judge/support_kernels.h"

namespace vitune {

enum class Operand { kQ, kK, kV, kO, kLse, kBias, kMask };
inline constexpr std::size_t kOperands = 7;

// Where an operand starts: an allocation and a byte offset in it.
struct Placement {
  std::size_t allocation = 0;
  std::int64_t offset = 0;
  bool operator==(const Placement&) const = default;
};

inline constexpr std::int64_t kGuardBytes = 4096;

struct WorkloadPlan {
  std::vector<std::int64_t> allocations;  // bytes, guards included; multiples of 256
  std::array<std::optional<Placement>, kOperands> operands;

  const std::optional<Placement>& at(Operand operand) const {
    return operands[static_cast<std::size_t>(operand)];
  }
  std::int64_t bytes() const;
};

// Which tensors share an allocation and where each starts. Pointers have exactly the alignment that
// the problem promises. Throws Error(kUsage) if sizes overflow 64 bits.
WorkloadPlan plan_workload(const AttentionProblem& problem);

// How one set of random inputs is drawn.
struct DrawSpec {
  std::uint64_t seed = 0;
  double q_mean = 0, q_deviation = 1;
  double k_mean = 0;
  double outlier_deviation = 0;  // of the key in the middle; 0: it is like the others
  double bias_deviation = 1;
  double bias_infinite_share = 0, bias_masked_share = 0;
  double mask_share = 0.75;
};

enum class Draw {
  kNormal,   // standard normal q, k, v: what an untrained network has
  kExtreme,  // logits of standard deviation 8 around -40, a bias with -inf in it
  kOutlier,  // standard normal logits but for one key's, of standard deviation 200
  kMasked,   // no logits but a bias, half of whose runs are large negative numbers
};
// For any problem and size.
inline constexpr std::array<Draw, 2> kDraws = {Draw::kExtreme, Draw::kNormal};

// kExtreme forces the softmax to rescale, and puts all logits far below 0, the score of a
// zero-filled key past the end: a kernel that forgets to mask its tail then gives that key all the
// weight, while among logits around 0 the mistake may hide in the rounding. kOutlier has weights
// that fp32 does not hold relative to another key's: kernels that go by the first keys of a row
// (kHoldsReference in templates/attention) must notice. kMasked has rows and steps of keys that are
// masked by finite numbers, as models do it, from -65,000 to the most negative one: equal within 64
// keys, so that an answer does not hang on what is left of a logit beside it.
DrawSpec draw_spec(const AttentionProblem& problem, Draw draw);

// What a worker has at hand for all of its work.
struct GpuTools {
  const CudaContext& context;
  const CudaStream& stream;
  const SupportKernels& support;
  const DeviceInfo& device;
};

// Throws CudaError(out of memory) unless `bytes` more fit with some room to spare.
void require_memory(const CudaContext& context, std::int64_t bytes);

class Workload {
 public:
  // Throws CudaError, out of memory included.
  Workload(const GpuTools& tools, const AttentionProblem& problem);

  const AttentionProblem& problem() const { return problem_; }
  AttentionPointers pointers() const;
  // Fills the inputs unless they hold this draw already.
  void fill_inputs(Draw draw);
  // The next fill_inputs() fills again.
  void forget_inputs() { filled_.reset(); }
  void poison_outputs();
  // Adds a digest of each input allocation, guards included, to the words from `sums` on, one word
  // per input allocation. Returns their number, at most kMaxInputs.
  std::size_t digest_inputs(CuPointer sums) const;
  static constexpr std::size_t kMaxInputs = 5;
  // Adds a digest of the outputs to the word at `sum`.
  void digest_outputs(CuPointer sum) const;
  // The bytes from an operand's first element to the end of its allocation, once the stream is
  // idle.
  std::vector<std::byte> download(Operand operand) const;
  // Adds the number of 64-bit words of the outputs' allocations that are not poison.
  void count_output_damage(CuPointer count) const;

 private:
  CuPointer address(Operand operand) const;
  bool is_output(std::size_t allocation) const;
  void fill_tensor(Operand operand, const DrawSpec& spec);
  void fill_scores(Operand operand, const ScoreOperand& score, const DrawSpec& spec);

  GpuTools tools_;
  AttentionProblem problem_;
  WorkloadPlan plan_;
  std::vector<DeviceBuffer> buffers_;
  std::optional<Draw> filled_;
};

}  // namespace vitune
