// python/native/layout.cpp -- Folds leading dimensions into batch and head, or into a loop of
// launches.
// SPDX-License-Identifier: Apache-2.0
#include "python/native/layout.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/native/refusal.h"

namespace vitune::torch_ops {
namespace {

using Dims = std::vector<int>;

// Which leading dimensions become the loop, the batch and the head, each outermost first.
struct Fold {
  Dims loop, batch, head;
};

// The first of several that fit is taken; by the number of leading dimensions.
const std::vector<Fold>& folds_of(int leading, bool grouped) {
  static const std::vector<Fold> plain[] = {
      {{{}, {}, {}}},
      {{{}, {0}, {}}},
      {{{}, {0}, {1}}},
      {{{}, {0, 2}, {1}}, {{}, {0, 1}, {2}}, {{}, {0}, {1, 2}}, {{}, {1, 2}, {0}}, {{0}, {2}, {1}}},
  };
  // The third dimension from the end is the head, as PyTorch counts.
  static const std::vector<Fold> with_groups[] = {
      {},
      {{{}, {}, {0}}},
      {{{}, {0}, {1}}},
      {{{}, {0, 1}, {2}}, {{0}, {1}, {2}}},
  };
  return (grouped ? with_groups : plain)[leading];
}

int64_t at(const Extents& extents, int index) { return extents[static_cast<std::size_t>(index)]; }
int64_t& at(Extents& extents, int index) { return extents[static_cast<std::size_t>(index)]; }

int64_t from_end(const Extents& extents, int rank, int back) { return at(extents, rank - back); }

std::string shape_text(const View& view) {
  std::string text = "[";
  for (int i = 0; i < view.rank; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(at(view.shape, i));
  }
  return text + "]";
}

// `view` broadcast to the first `rank` of `shape`, as torch.Tensor.expand() does it.
View expanded(const View& view, int rank, const Extents& shape, const std::string& what) {
  View wide{rank, shape, {}};
  const int missing = rank - view.rank;
  for (int i = 0; i < view.rank; ++i) {
    const int64_t mine = at(view.shape, i), wanted = missing < 0 ? -1 : at(shape, missing + i);
    if (missing < 0 || (mine != 1 && mine != wanted)) {
      refuse_argument(what + " of shape " + shape_text(view) + " does not broadcast to " +
                      shape_text(wide));
    }
    at(wide.strides, missing + i) = mine == 1 && wanted != 1 ? 0 : at(view.strides, i);
  }
  return wide;
}

// The one stride of `dimensions` (two at most), none if they do not fold.
std::optional<int64_t> folded(const View& view, const Dims& dimensions, bool strict) {
  if (dimensions.empty()) {
    return 0;
  }
  const int outer = dimensions.front(), inner = dimensions.back();
  if (dimensions.size() == 1) {
    return at(view.strides, outer);
  }
  const int64_t extent = at(view.shape, inner), step = at(view.strides, inner);
  if (at(view.strides, outer) == extent * step) {
    return step;
  }
  if (strict || std::min(at(view.shape, outer), extent) != 1) {
    return std::nullopt;
  }
  return extent == 1 ? at(view.strides, outer) : step;
}

int64_t extent_of(const View& view, const Dims& dimensions) {
  int64_t product = 1;
  for (const int i : dimensions) {
    product *= at(view.shape, i);
  }
  return product;
}

struct MaskBatches {
  int64_t entries, stride;
};

// Entry i % entries belongs to batch entry i.
std::optional<MaskBatches> mask_batches(const View& mask, const Dims& dimensions, bool strict) {
  if (std::all_of(dimensions.begin(), dimensions.end(),
                  [&](int i) { return at(mask.strides, i) == 0 || at(mask.shape, i) == 1; })) {
    return MaskBatches{1, 0};
  }
  if (const auto stride = folded(mask, dimensions, strict)) {
    return MaskBatches{extent_of(mask, dimensions), *stride};
  }
  if (at(mask.strides, dimensions.front()) == 0) {  // the same for each image, as window masks are
    return MaskBatches{at(mask.shape, dimensions.back()), at(mask.strides, dimensions.back())};
  }
  return std::nullopt;
}

// The log-sum-exp is contiguous in the order loop, batch, head, row; this is it in the caller's.
View lse_view(const View& q, const Fold& fold) {
  Dims order = fold.loop;
  order.insert(order.end(), fold.batch.begin(), fold.batch.end());
  order.insert(order.end(), fold.head.begin(), fold.head.end());
  order.push_back(q.rank - 2);
  View view{q.rank - 1, q.shape, {}};
  int64_t step = 1;
  for (auto dimension = order.rbegin(); dimension != order.rend(); ++dimension) {
    at(view.strides, *dimension) = step;
    step *= at(q.shape, *dimension);
  }
  return view;
}

struct Operands {
  std::array<View, 4> all;  // q, k, v, out
  std::optional<View> mask;
  int64_t window = 0;  // entries of a mask that repeats over the batch; 0: it does not
};

std::optional<Layout> attempt(const Fold& fold, const Operands& operands, bool strict) {
  Layout layout;
  for (std::size_t i = 0; i < 4; ++i) {
    const View& view = operands.all[i];
    const auto batch = folded(view, fold.batch, strict), head = folded(view, fold.head, strict);
    if (!batch || !head) {
      return std::nullopt;
    }
    layout.strides[i] = {*batch, *head, from_end(view.strides, view.rank, 2)};
  }
  const auto& [q, k, v, out] = operands.all;
  if (operands.mask) {
    const View& mask = *operands.mask;
    const auto entries = mask_batches(mask, fold.batch, strict);
    const auto head = folded(mask, fold.head, strict);
    if (!entries || !head) {
      return std::nullopt;
    }
    layout.mask_batches = operands.window > 0 ? operands.window : entries->entries;
    layout.mask = {entries->stride, *head, from_end(mask.strides, mask.rank, 2),
                   from_end(mask.strides, mask.rank, 1)};
  }
  layout.batch = extent_of(q, fold.batch);
  layout.heads = extent_of(q, fold.head);
  layout.kv_heads = extent_of(k, fold.head);
  layout.nq = from_end(q.shape, q.rank, 2);
  layout.nk = from_end(k.shape, k.rank, 2);
  layout.d = from_end(q.shape, q.rank, 1);
  layout.out = out;
  layout.lse = lse_view(q, fold);
  if (!fold.loop.empty()) {
    const int loop = fold.loop.front();
    layout.launches = at(q.shape, loop);
    layout.steps = {at(q.strides, loop),   at(k.strides, loop),
                    at(v.strides, loop),   operands.mask ? at(operands.mask->strides, loop) : 0,
                    at(out.strides, loop), layout.batch * layout.heads * layout.nq};
  }
  return layout;
}

void check_head_size(int64_t d) {
  if (d > 128) {
    refuse_unsupported("head size " + std::to_string(d) + " is above 128");
  }
  if (d % 8 != 0 || d < 8) {
    refuse_unsupported("head size " + std::to_string(d) + " is no multiple of 8");
  }
}

void check_shapes(const View& q, const View& k, const View& v, bool enable_gqa) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (q.rank != k.rank || q.rank != v.rank) {
    refuse_argument("q, k and v have the ranks " + number(q.rank) + ", " + number(k.rank) +
                    " and " + number(v.rank) + ": they must agree");
  }
  if (q.rank < 2 || q.rank > kMaxRank) {
    refuse_unsupported("rank " + number(q.rank) +
                       ": [rows, d] to [x, batch, heads, rows, d] are understood");
  }
  const int rank = q.rank;
  const int64_t d = from_end(q.shape, rank, 1);
  if (d != from_end(k.shape, rank, 1)) {
    refuse_argument("q has head size " + number(d) + " and k " +
                    number(from_end(k.shape, rank, 1)) + ": they must agree");
  }
  if (from_end(k.shape, rank, 2) != from_end(v.shape, rank, 2)) {
    refuse_argument("k has " + number(from_end(k.shape, rank, 2)) + " rows and v " +
                    number(from_end(v.shape, rank, 2)) + ": they must agree");
  }
  if (from_end(v.shape, rank, 1) != d) {
    refuse_unsupported("v has head size " + number(from_end(v.shape, rank, 1)) + " and q " +
                       number(d) + ": the kernels need one head size");
  }
  if (enable_gqa && rank < 3) {
    refuse_argument("enable_gqa needs a head dimension: [..., heads, rows, d]");
  }
  check_head_size(d);
  const std::pair<const char*, const View*> views[] = {{"q", &q}, {"k", &k}, {"v", &v}};
  for (const auto& [name, view] : views) {
    if (from_end(view->strides, rank, 1) != 1) {
      refuse_unsupported(std::string("the last dimension of ") + name + " is not contiguous: use " +
                         name + ".contiguous()");
    }
  }
}

// Broadcasts the first `leading` dimensions of q, k and v to each other.
void broadcast(View& q, View& k, View& v, int leading) {
  View* const views[] = {&q, &k, &v};
  Extents wide{};
  for (int i = 0; i < leading; ++i) {
    int64_t extent = 1;
    for (const View* view : views) {
      const int64_t mine = at(view->shape, i);
      if (mine != 1 && extent != 1 && mine != extent) {
        const auto shown = [&](const View& x) {
          View cut{leading + 2, x.shape, {}};
          at(cut.shape, leading) = from_end(x.shape, x.rank, 2);
          at(cut.shape, leading + 1) = from_end(x.shape, x.rank, 1);
          return shape_text(cut);
        };
        refuse_argument("these do not broadcast to each other: q " + shown(q) + ", k " + shown(k) +
                        ", v " + shown(v) + " (is enable_gqa wanted?)");
      }
      extent = mine != 1 ? mine : extent;
    }
    at(wide, i) = extent;
  }
  const char* const names[] = {"q", "k", "v"};
  for (std::size_t i = 0; i < 3; ++i) {
    Extents shape = views[i]->shape;
    std::copy_n(wide.begin(), leading, shape.begin());
    *views[i] = expanded(*views[i], views[i]->rank, shape, names[i]);
  }
}

void check_groups(const View& q, const View& k, const View& v) {
  const int64_t heads = from_end(q.shape, q.rank, 3), kv_heads = from_end(k.shape, k.rank, 3),
                v_heads = from_end(v.shape, v.rank, 3);
  if (v_heads != kv_heads || kv_heads == 0 || heads % kv_heads != 0) {
    refuse_argument("q has " + std::to_string(heads) + " heads, k " + std::to_string(kv_heads) +
                    " and v " + std::to_string(v_heads) +
                    ": k and v need the same number, a divisor of q's");
  }
}

// The mask broadcast to the scores, or to a part of their batch that repeats.
void set_mask(Operands& operands, const View& mask, bool window_masks) {
  const View& q = operands.all[0];
  Extents scores = q.shape;
  at(scores, q.rank - 1) = from_end(operands.all[1].shape, q.rank, 2);
  const int64_t entries = mask.shape[0], batch = scores[0];
  if (window_masks && mask.rank == 4 && q.rank == 4 && 1 < entries && entries < batch &&
      batch % entries == 0) {
    Extents part = scores;
    part[0] = entries;
    operands.mask = expanded(mask, q.rank, part, "attn_mask");
    operands.mask->shape = scores;
    operands.window = entries;
  } else {
    operands.mask = expanded(mask, q.rank, scores, "attn_mask");
  }
}

Extents strides_in(Order order, const View& q, const LayoutOptions& options,
                   const Extents& v_strides, bool is_of_q) {
  if (order == Order::kOfQ && is_of_q) {
    return options.like_q;
  }
  return order == Order::kRows ? output_strides(q.rank, q.shape, v_strides)
                               : contiguous_strides(q.rank, q.shape);
}

std::optional<Layout> first_fold(const Operands& operands, bool grouped) {
  // Extents of 1 fold with anything: first by what their strides say, which tells a batch of one
  // from windows.
  for (const bool strict : {true, false}) {
    for (const Fold& candidate : folds_of(operands.all[0].rank - 2, grouped)) {
      if (strict && !candidate.loop.empty()) {
        continue;
      }
      if (const auto layout = attempt(candidate, operands, strict)) {
        return layout;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Extents contiguous_strides(int rank, const Extents& shape) {
  Extents strides{};
  int64_t step = 1;
  for (int i = rank; i-- > 0; step *= at(shape, i)) {
    at(strides, i) = step;
  }
  return strides;
}

bool has_rows_outside(const View& q) {
  const int64_t of_batch = q.strides[0], of_heads = q.strides[1], of_rows = q.strides[2];
  return (q.shape[1] == 1 || q.shape[2] == 1 || of_rows >= of_heads) &&
         (q.shape[0] == 1 || of_batch >= std::max(of_heads, of_rows));
}

bool repeats(const View& mask, const View& q) {
  return mask.rank == 4 && q.rank == 4 && 1 < mask.shape[0] && mask.shape[0] < q.shape[0];
}

Extents output_strides(int rank, const Extents& shape, const Extents& v_strides) {
  Dims order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (rank >= 4) {
    std::swap(order[static_cast<std::size_t>(rank - 3)], order[static_cast<std::size_t>(rank - 2)]);
  }
  if (rank == 5) {
    Dims own = {0, 1, 2, 3};
    std::stable_sort(own.begin(), own.end(),
                     [&](int a, int b) { return at(v_strides, a) > at(v_strides, b); });
    if (own.back() != 3) {
      own.push_back(4);
      order = own;
    }
  }
  Extents strides{};
  int64_t step = 1;
  for (auto dimension = order.rbegin(); dimension != order.rend(); ++dimension) {
    at(strides, *dimension) = step;
    step *= at(shape, *dimension);
  }
  return strides;
}

Layout fold(View q, View k, View v, const View* mask, const LayoutOptions& options) {
  check_shapes(q, k, v, options.enable_gqa);
  const Extents own_strides = v.strides;  // of a broadcast v too: what a compiler sees
  const int rank = q.rank;
  const bool grouped =
      options.enable_gqa && from_end(k.shape, rank, 3) != from_end(q.shape, rank, 3);
  if (grouped) {
    check_groups(q, k, v);
  }
  const Extents of_q = q.shape;
  broadcast(q, k, v, grouped ? rank - 3 : rank - 2);
  const Extents wanted = strides_in(options.order, q, options, own_strides, q.shape == of_q);
  Operands operands{{q, k, v, View{rank, q.shape, wanted}}, {}, 0};
  if (mask != nullptr) {
    set_mask(operands, *mask, options.window_masks);
  }
  std::optional<Layout> layout = first_fold(operands, grouped);
  if (!layout || layout->launches > 1) {
    // A copy of one launch's result costs less than a launch for each image.
    operands.all[3].strides = output_strides(rank, q.shape, own_strides);
    const std::optional<Layout> own = first_fold(operands, grouped);
    layout = own && (!layout || own->launches == 1) ? own : layout;
  }
  if (!layout) {
    refuse_unsupported("the strides of q, k, v and the mask do not fold: use .contiguous()");
  }
  layout->wanted_strides = wanted;
  return *layout;
}

}  // namespace vitune::torch_ops
