// python/native/layout.h -- How tensors of rank 2 to 5 and a mask become one description, without a
// copy.
//
// The same rules as python/vitune/_ops/layout.py, which serves where this library is missing: tests
// run every call through both.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_LAYOUT_H_
#define VITUNE_PYTHON_NATIVE_LAYOUT_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "vitune/vitune.h"

namespace vitune::torch_ops {

inline constexpr int kMaxRank = 5;
using Extents = std::array<int64_t, kMaxRank>;

// A tensor by its extents and strides, the latter in elements.
struct View {
  int rank = 0;
  Extents shape{};
  Extents strides{};
};

// Where a result lies in memory: python/vitune/_ops/order.py.
enum class Order : int64_t { kTorchs = 0, kContiguous, kRows, kOfQ };

struct LayoutOptions {
  bool enable_gqa = false;
  bool window_masks = false;   // a rank 4 mask may have w batch entries, w a divisor of the batch
  Order order = Order::kRows;  // not kTorchs
  Extents like_q{};            // with kOfQ: strides of a dense tensor that lies as q
};

// The part of a description that comes from shapes and strides, and the loop around the launches.
struct Layout {
  int64_t batch = 0, heads = 0, kv_heads = 0, nq = 0, nk = 0, d = 0;
  std::array<vitune_strides, 4> strides{};  // of q, k, v, out
  std::array<int64_t, 4> mask{};            // of batch entry, head, query row, key
  int64_t mask_batches = 0;
  int64_t launches = 1;
  std::array<int64_t, 6> steps{};  // elements from one launch to the next: q, k, v, mask, out, lse
  // q's shape, its leading extents broadcast; as a kernel writes it.
  View out;
  // Strides of the result as the order has it: others than out's only where those would cost a
  // launch for each image.
  Extents wanted_strides{};
  View lse;  // what the kernel writes, in the caller's order
};

// Strides of a contiguous tensor.
Extents contiguous_strides(int rank, const Extents& shape);

// Strides of an output whose heads are to be joined: dense; rank 4 is [batch, rows, heads, d] in
// memory, and rank 5 follows v's own order where its rows lie outside of another one.
Extents output_strides(int rank, const Extents& shape, const Extents& v_strides);

// True if q of rank 4 is [batch, rows, heads, d] in memory: then all but the plain backend of
// PyTorch's lay out their results so.
bool has_rows_outside(const View& q);

// True if a mask has an entry for each window, again and again, which PyTorch has not.
bool repeats(const View& mask, const View& q);

// Throws Refusal for shapes that contradict each other and for what the kernels do not do. `mask`
// may be null.
Layout fold(View q, View k, View v, const View* mask, const LayoutOptions& options);

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_LAYOUT_H_
