// include/vitune/vitune.hpp -- libvitune for C++17: a context that ends itself, exceptions, views.
//
// Header only, over vitune.h, whose comments are the contract; nothing but it and the standard
// library is needed. A Context may be used by any number of threads at once, an Attention by one at
// a time while it is changed. Memory on the GPU and streams stay the caller's.
//
//   vitune::Context context;
//   auto attention = vitune::Attention({.batch = 32, .heads = 12, .nq = 197, .d = 64}).packed();
//   context.forward(attention, {.q = q, .k = k, .v = v, .out = out}, stream);
//
//   vitune::Problem norm("norm bf16 m=6304 d=768 weight");  // any operator, by its text
//   vitune::Problem mlp(vitune::Linear({.m = 6304, .n = 3072, .k = 768}).bias().text());
//   const auto tensors = norm.addresses({{"x", x}, {"weight", w}, {"out", out}});
//   context.run(norm, tensors, {}, stream);
//
// Naming fields in braces is C++20; before it a struct is made first and its fields are set.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_VITUNE_HPP_
#define VITUNE_VITUNE_HPP_

#if __cplusplus < 201703L
#error "vitune.hpp needs C++17 (-std=c++17 or newer); vitune.h does with C99 and with any C++"
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <locale>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "vitune/vitune.h"

namespace vitune {
// The library has a Problem too: a program that links its parts, as its tests do, keeps them apart.
inline namespace cpp {

// The values of these are those of vitune.h in the same order.
enum class DataType : std::int32_t { kBf16 = VITUNE_BF16, kFp16, kFp32, kBool, kU8, kI32 };
// The choice of a kernel for a problem without a winner of its own; kEnvironment: as VITUNE_MISS
// says.
enum class OnMiss : std::int32_t { kEnvironment, kNearest, kDefault, kCompile, kError };
// The behaviour of other threads while one loads the kernel of a problem for the first time.
enum class OnBusy : std::int32_t { kWait, kDefault };
// Which of the two timings chose the winner.
enum class TunedFor : std::int32_t { kCold, kWarm };
// How a kernel was found.
enum class Served : std::int32_t { kExact = VITUNE_EXACT, kNearest, kDefault, kTransferred };
enum class LogSeverity : std::int32_t { kDebug, kInfo, kWarning, kError };

// A call that failed. what(): "VITUNE_NO_DEVICE: " and the sentence of vitune_last_error().
class Exception : public std::runtime_error {
 public:
  Exception(vitune_status status, std::string_view sentence)
      : std::runtime_error(std::string(vitune_status_name(status)) + ": " + std::string(sentence)),
        status_(status) {}

  vitune_status status() const noexcept { return status_; }

  // Throws what the last call of this thread left, unless `status` is VITUNE_OK.
  static void check(vitune_status status) {
    if (status != VITUNE_OK) throw Exception(status, vitune_last_error());
  }

 private:
  vitune_status status_;
};

// A tensor's memory on the GPU: its address and, where known, the bytes from there to the end of
// its buffer, which are then checked (0: not known). Made from a pointer, a CUdeviceptr or,
// in C++20, a std::span of device memory. Never read through.
template <typename Void>
class DeviceView {
 public:
  constexpr DeviceView() noexcept = default;
  constexpr DeviceView(std::nullptr_t) noexcept {}
  constexpr DeviceView(Void* data, std::int64_t bytes = 0) noexcept : data_(data), bytes_(bytes) {}
  // A CUdeviceptr and no other integer: an int is a mistake more often than an address.
  template <typename Address,
            std::enable_if_t<std::is_same_v<Address, unsigned long long>, int> = 0>
  DeviceView(Address address, std::int64_t bytes = 0) noexcept
      : data_(reinterpret_cast<Void*>(static_cast<std::uintptr_t>(address))), bytes_(bytes) {}
#if __cplusplus >= 202002L
  template <typename Element, std::size_t kExtent,
            std::enable_if_t<std::is_convertible_v<Element*, Void*>, int> = 0>
  constexpr DeviceView(std::span<Element, kExtent> buffer) noexcept
      : data_(buffer.data()), bytes_(static_cast<std::int64_t>(buffer.size_bytes())) {}
#endif

  constexpr Void* data() const noexcept { return data_; }
  constexpr std::int64_t bytes() const noexcept { return bytes_; }

 private:
  Void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};
using DeviceInput = DeviceView<const void>;
using DeviceOutput = DeviceView<void>;

// Strides in elements, of an array, std::array, std::vector, std::span or whatever else has data()
// and size(). Reads them only while the call lasts that it is given to.
class StrideView {
 public:
  template <std::size_t kCount>
  constexpr StrideView(const std::int64_t (&strides)[kCount]) noexcept
      : data_(strides), size_(kCount) {}
  template <typename List,
            std::enable_if_t<std::is_convertible_v<decltype(std::declval<const List&>().data()),
                                                   const std::int64_t*>,
                             int> = 0>
  constexpr StrideView(const List& strides) noexcept
      : data_(strides.data()), size_(strides.size()) {}

  constexpr std::size_t size() const noexcept { return size_; }
  constexpr std::int64_t operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  const std::int64_t* data_;
  std::size_t size_;
};

// The tensors of one call. bias, mask and lse are given exactly where the Attention has them.
struct AttentionTensors {
  DeviceInput q = {}, k = {}, v = {};
  DeviceOutput out = {};
  DeviceInput bias = {}, mask = {};
  DeviceOutput lse = {};        // fp32 [batch, heads, nq], contiguous
  DeviceOutput workspace = {};  // scratch memory with its size: Context::workspace_bytes() of it
};

// The sizes of an attention problem: q, out [batch, heads, nq, d]; k, v [batch, kv_heads, nk, d].
struct AttentionSizes {
  DataType dtype = DataType::kBf16;  // of q, k, v, out: kBf16 or kFp16
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;  // 0: heads
  std::int64_t nq = 1;        // query rows
  std::int64_t nk = 0;        // key rows; 0: nq
  std::int64_t d = 64;        // head size: 8 to 128 in steps of 8
  double scale = 0;           // of q k^T; 0: 1 / sqrt(d)
  bool causal = false;        // query i sees keys 0..i
  bool lse = false;           // also writes the natural log-sum-exp of each row
};

// An attention problem: sizes, layouts, bias and mask. Nothing is checked before it is used: then
// what is wrong is an Exception with VITUNE_INVALID_ARGUMENT or VITUNE_UNSUPPORTED.
class Attention {
 public:
  // q, k, v and out are contiguous [batch, rows, heads, d] tensors.
  explicit Attention(const AttentionSizes& sizes) {
    desc_.dtype = static_cast<std::int32_t>(sizes.dtype);
    desc_.batch = sizes.batch;
    desc_.heads = sizes.heads;
    desc_.kv_heads = sizes.kv_heads == 0 ? sizes.heads : sizes.kv_heads;
    desc_.nq = sizes.nq;
    desc_.nk = sizes.nk == 0 ? sizes.nq : sizes.nk;
    desc_.d = sizes.d;
    desc_.scale = sizes.scale;
    desc_.causal = sizes.causal ? 1 : 0;
    desc_.lse = sizes.lse ? 1 : 0;
    bnhd();
  }

  // The problem of a text such as "bf16 b=32 h=12 n=197 d=64" (docs/problems.md). Throws Exception.
  static Attention parse(const std::string& text) {
    Attention attention((AttentionSizes()));
    Exception::check(vitune_problem_parse(text.c_str(), &attention.desc_));
    return attention;
  }

  // --- layouts; strides are in elements, the last dimension is contiguous
  // Contiguous [batch, rows, heads, d] tensors.
  Attention& bnhd() {
    return layout([](std::int64_t heads, std::int64_t rows, std::int64_t d) {
      return vitune_strides{product(rows, product(heads, d)), d, product(heads, d)};
    });
  }
  // Contiguous [batch, heads, rows, d] tensors.
  Attention& bhnd() {
    return layout([](std::int64_t heads, std::int64_t rows, std::int64_t d) {
      return vitune_strides{product(heads, product(rows, d)), product(rows, d), d};
    });
  }
  // q, k, v are slices of one [batch, n, heads + 2 kv_heads, d] tensor; out is as for bnhd().
  Attention& packed() {
    bnhd();
    std::int64_t row = product(2, product(desc_.kv_heads, desc_.d));
    if (__builtin_add_overflow(row, product(desc_.heads, desc_.d), &row)) row = INT64_MAX;
    desc_.q = {product(desc_.nq, row), desc_.d, row};
    desc_.k = desc_.v = {product(desc_.nk, row), desc_.d, row};
    return *this;
  }
  // Any strides as {batch, head, row}, or {batch, head, row, 1} as a [batch, heads, rows, d] view
  // of a tensor library has them. Throws Exception(VITUNE_INVALID_ARGUMENT) for others.
  Attention& q_strides(StrideView strides) { return set(desc_.q, strides, "q"); }
  Attention& k_strides(StrideView strides) { return set(desc_.k, strides, "k"); }
  Attention& v_strides(StrideView strides) { return set(desc_.v, strides, "v"); }
  Attention& out_strides(StrideView strides) { return set(desc_.o, strides, "out"); }

  // Added to the scaled scores. Strides of batch entry, head, query row and key; 0 broadcasts.
  // Batch b uses entry b % batches; 0: one entry per batch. Throws
  // Exception(VITUNE_INVALID_ARGUMENT) unless there are four.
  Attention& bias(DataType type, StrideView strides, std::int64_t batches = 0) {
    set(desc_.bias_strides, strides, "bias");
    desc_.bias_type = static_cast<std::int32_t>(type);
    desc_.bias_batches = batches;
    return *this;
  }
  // One byte per score, nonzero = attend. Strides and batches as for bias().
  Attention& mask(StrideView strides, std::int64_t batches = 0) {
    set(desc_.mask_strides, strides, "mask");
    desc_.mask_type = VITUNE_BOOL;
    desc_.mask_batches = batches;
    return *this;
  }
  // The canonical text of the problem (docs/problems.md). Throws Exception.
  std::string text() const {
    std::string text(1024, '\0');
    std::size_t length = 0;
    Exception::check(vitune_problem_text(&desc_, text.data(), text.size(), &length));
    if (length >= text.size()) {
      text.resize(length + 1);
      Exception::check(vitune_problem_text(&desc_, text.data(), text.size(), &length));
    }
    text.resize(length);
    return text;
  }

  // The descriptor for the C interface; set there what this class does not cover.
  const vitune_attention_desc& desc() const noexcept { return desc_; }
  vitune_attention_desc& desc() noexcept { return desc_; }

 private:
  // The library refuses a stride of the largest int64 with a sentence; an overflow is no behaviour.
  static std::int64_t product(std::int64_t a, std::int64_t b) noexcept {
    std::int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
  }

  template <typename StridesOf>
  Attention& layout(StridesOf strides_of) {
    desc_.q = desc_.o = strides_of(desc_.heads, desc_.nq, desc_.d);
    desc_.k = desc_.v = strides_of(desc_.kv_heads, desc_.nk, desc_.d);
    return *this;
  }

  Attention& set(vitune_strides& to, StrideView from, const char* name) {
    if (from.size() != 3 && !(from.size() == 4 && from[3] == 1)) {
      throw Exception(VITUNE_INVALID_ARGUMENT,
                      std::string("the strides of ") + name +
                          " must be {batch, head, row} or {batch, head, row, 1}: make the last "
                          "dimension contiguous");
    }
    to = {from[0], from[1], from[2]};
    return *this;
  }

  static void set(std::int64_t (&to)[4], StrideView from, const char* name) {
    if (from.size() != 4) {
      throw Exception(VITUNE_INVALID_ARGUMENT,
                      std::string("the strides of ") + name +
                          " must be four, of batch entry, head, query row and key: 0 broadcasts, "
                          "also where the tensor has no such dimension");
    }
    for (std::size_t i = 0; i < 4; ++i) to[i] = from[i];
  }

  vitune_attention_desc desc_ = VITUNE_ATTENTION_DESC_INIT;
};

// Activations of linear layers.
enum class Activation : std::int32_t { kRelu, kGelu, kGeluTanh, kQuickGelu, kSilu };

// The text of a problem, word by word: names are checked as the program is compiled, values as the
// text is read. `Problem` and the functions that take a text say what is wrong with it.
template <typename Words>
class ProblemText {
 public:
  // As docs/problems.md describes it; not canonical.
  const std::string& text() const noexcept { return text_; }

 protected:
  // Where the rows of a tensor begin: so many elements apart; nothing: without gaps.
  using Row = std::optional<std::int64_t>;

  explicit ProblemText(std::string text) : text_(std::move(text)) {}

  Words& add(const std::string& word) {
    text_ += ' ' + word;
    return static_cast<Words&>(*this);
  }
  static std::string type(DataType type) {
    constexpr const char* kNames[] = {"bf16", "fp16", "fp32", "bool"};
    return kNames[static_cast<std::int32_t>(type) - static_cast<std::int32_t>(DataType::kBf16)];
  }
  static std::string with_row(const std::string& word, Row row) {
    return row ? word + "=@" + std::to_string(*row) : word;
  }
  static std::string at_row(Row row) { return row ? "@" + std::to_string(*row) : ""; }
  static std::string number(double value) {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out.precision(17);
    out << value;
    return out.str();
  }

 private:
  std::string text_;
};

// out = residual + factor * scale * act(norm(x) W^T + bias) of m rows of k elements; n of a result.
struct LinearSizes {
  DataType dtype = DataType::kBf16;  // of x and W: kBf16 or kFp16
  std::int64_t m = 1, n = 1, k = 1;
};

// The text of a linear layer.
class Linear : public ProblemText<Linear> {
 public:
  explicit Linear(const LinearSizes& sizes)
      : ProblemText("linear " + type(sizes.dtype) + " m=" + std::to_string(sizes.m) +
                    " n=" + std::to_string(sizes.n) + " k=" + std::to_string(sizes.k)) {}

  Linear& bias() { return add("bias"); }
  Linear& scale() { return add("scale"); }
  // Type of bias and scale.
  Linear& params(DataType of) { return add("params=" + type(of)); }
  Linear& act(Activation activation) { return add("act=" + word(activation)); }
  // The sums are multiplied by this activation's derivative at `pre`.
  Linear& dact(Activation activation) { return add("dact=" + word(activation)); }
  // A norm before the layer, of given statistics, or of given moments of so many columns.
  Linear& layer_norm() { return add("norm=layer"); }
  Linear& rms_norm() { return add("norm=rms"); }
  Linear& norm_of_moments(std::int64_t columns, double eps = 1e-5) {
    return add("norm=moments:" + std::to_string(columns) + " eps=" + number(eps));
  }
  Linear& residual(Row row = {}) { return add(with_row("residual", row)); }
  // The residual has so many rows and repeats.
  Linear& period(std::int64_t rows) { return add("period=" + std::to_string(rows)); }
  // The result's rows come in runs of `run`, with `gap` rows between two that are left alone.
  Linear& rows(std::int64_t run, std::int64_t gap) {
    return add("rows=" + std::to_string(run) + "+" + std::to_string(gap));
  }
  // A factor of so many rows each.
  Linear& factor(std::int64_t rows) { return add("factor=" + std::to_string(rows)); }
  // Type and row stride of the residual and the result.
  Linear& out(DataType of, Row row = {}) { return add("out=" + type(of) + at_row(row)); }
  Linear& out_row(std::int64_t row) { return add(with_row("out", row)); }
  Linear& x_row(std::int64_t row) { return add(with_row("x", row)); }
  Linear& w_row(std::int64_t row) { return add(with_row("w", row)); }
  Linear& pre_row(std::int64_t row) { return add(with_row("pre", row)); }
  // W is [k, n].
  Linear& transposed(Row row = {}) { return add(with_row("wt", row)); }
  // Further results: the sums with their bias, the activation of `pre`, moments of so many columns.
  Linear& aux(Row row = {}) { return add(with_row("aux", row)); }
  Linear& post(Row row = {}) { return add(with_row("post", row)); }
  Linear& moments(std::int64_t columns) { return add("moments=" + std::to_string(columns)); }
  // Least alignment of all pointers, in bytes.
  Linear& align(int bytes) { return add("align=" + std::to_string(bytes)); }

 private:
  static std::string word(Activation activation) {
    constexpr const char* kNames[] = {"relu", "gelu", "gelu_tanh", "quick_gelu", "silu"};
    return kNames[static_cast<std::int32_t>(activation)];
  }
};

// LayerNorm or RMSNorm over the last dimension of m rows of d elements.
struct NormSizes {
  DataType dtype = DataType::kBf16;  // of x, residual and sum: kBf16, kFp16 or kFp32
  std::int64_t m = 1, d = 1;
};

// The text of a norm.
class Norm : public ProblemText<Norm> {
 public:
  explicit Norm(const NormSizes& sizes)
      : ProblemText("norm " + type(sizes.dtype) + " m=" + std::to_string(sizes.m) +
                    " d=" + std::to_string(sizes.d)) {}

  Norm& rms() { return add("rms"); }
  Norm& weight() { return add("weight"); }
  Norm& bias() { return add("bias"); }
  // Type of weight and bias.
  Norm& params(DataType of) { return add("params=" + type(of)); }
  // Added to x before; a row of 0 repeats one row.
  Norm& residual(Row row = {}) { return add(with_row("residual", row)); }
  // Further results: x + residual, the result in another type, the statistics of each row.
  Norm& sum(Row row = {}) { return add(with_row("sum", row)); }
  Norm& second(DataType of, Row row = {}) { return add("second=" + type(of) + at_row(row)); }
  Norm& stats() { return add("stats"); }
  Norm& out(DataType of, Row row = {}) { return add("out=" + type(of) + at_row(row)); }
  Norm& out_row(std::int64_t row) { return add(with_row("out", row)); }
  Norm& x_row(std::int64_t row) { return add(with_row("x", row)); }
  Norm& eps(double value) { return add("eps=" + number(value)); }
  // Least alignment of all pointers, in bytes.
  Norm& align(int bytes) { return add("align=" + std::to_string(bytes)); }
};

// One tensor of a Problem; vitune_tensor as C++.
struct TensorInfo {
  std::string name;
  bool given = false;   // false: the problem does without it
  bool output = false;  // is written
  DataType type = DataType::kBf16;
  std::int64_t alignment = 0;                // of its address at least, in bytes
  std::array<std::int64_t, 4> extents = {};  // outermost dimension first
  std::array<std::int64_t, 4> strides = {};  // in elements
  std::int64_t bytes = 0;                    // from its address to one past the last element
};

// As the C interface describes it.
inline TensorInfo tensor_info(const vitune_tensor& c) {
  TensorInfo info;
  info.name = c.name;
  info.given = c.given != 0;
  info.output = c.output != 0;
  info.type = static_cast<DataType>(c.type);
  info.alignment = c.alignment;
  std::copy(std::begin(c.extents), std::end(c.extents), info.extents.begin());
  std::copy(std::begin(c.strides), std::end(c.strides), info.strides.begin());
  info.bytes = c.bytes;
  return info;
}

// A tensor of a call by its name, with its address as DeviceInput and DeviceOutput take it.
class NamedTensor {
 public:
  template <typename Address,
            std::enable_if_t<std::is_convertible_v<const Address&, DeviceInput> ||
                                 std::is_convertible_v<const Address&, DeviceOutput>,
                             int> = 0>
  NamedTensor(std::string_view name, const Address& address) : name_(name) {
    if constexpr (std::is_convertible_v<const Address&, DeviceOutput>) {
      writable_ = true;
      view_ = address;
    } else {
      const DeviceInput input = address;
      view_ = {const_cast<void*>(input.data()), input.bytes()};
    }
  }

  std::string_view name() const noexcept { return name_; }
  const DeviceOutput& view() const noexcept { return view_; }
  bool writable() const noexcept { return writable_; }

 private:
  std::string_view name_;
  DeviceOutput view_;
  bool writable_ = false;
};

// A problem of any operator by its text (docs/problems.md), read once and called as often as one
// likes. It belongs to no context and is never changed: any thread may use it with any context.
// Move only; one that was moved from gives VITUNE_INVALID_ARGUMENT.
class Problem {
 public:
  // Parses a text such as "norm bf16 m=6304 d=768 weight bias". Throws Exception.
  explicit Problem(std::string text) : text_(std::move(text)) {
    vitune_problem* problem = nullptr;
    Exception::check(vitune_problem_create(text_.c_str(), &problem));
    problem_.reset(problem);
    std::size_t count = 0;
    Exception::check(vitune_problem_tensors(problem, &count));
    for (std::size_t place = 0; place < count; ++place) {
      vitune_tensor tensor = VITUNE_TENSOR_INIT;
      Exception::check(vitune_problem_tensor(problem, place, &tensor));
      tensors_.push_back(tensor_info(tensor));
    }
  }

  // As it was given.
  const std::string& text() const noexcept { return text_; }
  // In the order of a call; all problems of an operator have the same.
  const std::vector<TensorInfo>& tensors() const noexcept { return tensors_; }

  // The addresses of a call, in the order of tensors() with null where one is not given: made once,
  // and valid for every later call on the same memory. Throws Exception(VITUNE_INVALID_ARGUMENT)
  // for a name that no tensor has or that comes twice, for a given tensor that is missing, for an
  // output in memory that must not be written, and for a buffer of fewer bytes than the tensor.
  std::vector<void*> addresses(std::initializer_list<NamedTensor> tensors) const {
    std::vector<void*> all(tensors_.size(), nullptr);
    for (const NamedTensor& tensor : tensors) {
      const std::size_t place = place_of(tensor);
      if (all[place] != nullptr) refuse(tensor.name(), "is there twice: name it once");
      all[place] = tensor.view().data();
    }
    for (std::size_t place = 0; place < all.size(); ++place) {
      if (tensors_[place].given && all[place] == nullptr) {
        refuse(tensors_[place].name, "has no address: the call needs it");
      }
    }
    return all;
  }

  // For the C interface; stays this object's. Null after a move.
  const vitune_problem* get() const noexcept { return problem_.get(); }

 private:
  struct Destroy {
    void operator()(vitune_problem* problem) const noexcept { vitune_problem_destroy(problem); }
  };

  [[noreturn]] void refuse(std::string_view name, const std::string& why) const {
    throw Exception(VITUNE_INVALID_ARGUMENT,
                    "'" + text_ + "': tensor '" + std::string(name) + "' " + why);
  }

  std::size_t place_of(const NamedTensor& tensor) const {
    const auto at = std::find_if(tensors_.begin(), tensors_.end(), [&](const TensorInfo& info) {
      return info.given && info.name == tensor.name();
    });
    if (at == tensors_.end()) {
      std::string names;
      for (const TensorInfo& info : tensors_) {
        if (info.given) names += (names.empty() ? "" : ", ") + info.name;
      }
      refuse(tensor.name(), "is not of this problem, which has " + names);
    }
    if (at->output && !tensor.writable()) {
      refuse(at->name, "is written, but its address is of memory that must not be");
    }
    const std::int64_t bytes = tensor.view().bytes();
    if (bytes != 0 && bytes < at->bytes) {
      refuse(at->name, "has a buffer of " + std::to_string(bytes) + " bytes and needs " +
                           std::to_string(at->bytes));
    }
    return static_cast<std::size_t>(at - tensors_.begin());
  }

  std::string text_;
  std::vector<TensorInfo> tensors_;
  std::unique_ptr<vitune_problem, Destroy> problem_;
};

// The addresses of a call in the order of Problem::tensors(), of an array, std::array, std::vector,
// std::span or whatever else has data() and size(). Reads them only while the call lasts.
class AddressView {
 public:
  template <std::size_t kCount>
  constexpr AddressView(void* const (&addresses)[kCount]) noexcept
      : data_(addresses), size_(kCount) {}
  template <typename List,
            std::enable_if_t<
                std::is_convertible_v<decltype(std::declval<const List&>().data()), void* const*>,
                int> = 0>
  constexpr AddressView(const List& addresses) noexcept
      : data_(addresses.data()), size_(addresses.size()) {}

  constexpr void* const* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }

 private:
  void* const* data_;
  std::size_t size_;
};

// Which kernel serves a problem, from which row, and why; vitune_selection as C++.
struct KernelSelection {
  Served served = Served::kDefault;
  bool loaded = false;                    // a call of this problem needs nothing more
  bool compiled = false;                  // by this process
  bool low_confidence = false;            // clocks or neighbours moved while the row was measured
  double cold_us = 0, warm_us = 0;        // of the row, in microseconds; 0: not measured
  double predicted_us = 0;                // of this problem; 0: not predicted
  double max_error = -1, rms_error = -1;  // of the row, absolute; negative: not known
  std::string problem, row, config, kernel_key, source, reason;
};

// How a Context works. What is left out is a good choice.
struct ContextOptions {
  int device = 0;  // ordinal of the GPU
  TunedFor tuned_for = TunedFor::kCold;
  OnMiss on_miss = OnMiss::kEnvironment;
  OnBusy on_busy = OnBusy::kWait;
  bool read_only = false;                    // never writes the database
  bool compile = true;                       // false: only stored kernels are used
  bool check_pointers = false;               // asks the driver about each pointer of each call
  std::chrono::seconds refresh = {};         // > 0: looks for new winners that often
  std::optional<std::string> database = {};  // nothing: VITUNE_DB and so on
  std::optional<std::string> shipped_database = {};  // nothing: the installed one; "": none
  std::chrono::duration<std::int32_t, std::milli> lock_wait = {};  // for another writer; 0: 250 ms
  std::optional<std::uint32_t> trust_owner = {};  // databases may also be this user's
  // Receives the library's messages, from any thread, one at a time; what it throws is dropped.
  std::function<void(LogSeverity, std::string_view)> log = {};
};

// Serves problems on one GPU; ended by its destructor. Move only. Used by any number of threads at
// once; the end must be the last call. Every function throws Exception unless it says otherwise; a
// context that was moved from or closed gives VITUNE_INVALID_CONTEXT.
class Context {
 public:
  // Opens the driver and the databases; VITUNE_NO_DEVICE without a GPU.
  explicit Context(ContextOptions options = {}) {
    vitune_context_options c = VITUNE_CONTEXT_OPTIONS_INIT;
    c.device = options.device;
    c.objective = static_cast<std::int32_t>(options.tuned_for);
    c.on_miss = static_cast<std::int32_t>(options.on_miss);
    c.on_busy = static_cast<std::int32_t>(options.on_busy);
    c.read_only = options.read_only ? 1 : 0;
    c.no_compile = options.compile ? 0 : 1;
    c.check_pointers = options.check_pointers ? 1 : 0;
    c.refresh_seconds = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(options.refresh.count(), -1, std::int64_t{1} << 30));
    c.database = options.database ? options.database->c_str() : nullptr;
    c.shipped_database = options.shipped_database ? options.shipped_database->c_str() : nullptr;
    c.lock_wait_ms = options.lock_wait.count();
    c.trust_owner = options.trust_owner.value_or(0);
    if (options.log) {
      log_ = std::make_unique<Log>(std::move(options.log));
      c.log = &Context::pass_on;
      c.log_user = log_.get();
    }
    Exception::check(vitune_context_create(&c, &handle_));
  }
  Context(Context&& other) noexcept
      : log_(std::move(other.log_)), handle_(std::exchange(other.handle_, nullptr)) {}
  Context& operator=(Context&& other) noexcept {
    if (this != &other) {
      if (handle_ != nullptr) vitune_context_destroy(handle_);
      log_ = std::move(other.log_);
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { vitune_context_destroy(handle_); }  // of nothing: without harm

  // Ends the context now; graphs that captured its launches must not be replayed afterwards.
  void close() { Exception::check(vitune_context_destroy(std::exchange(handle_, nullptr))); }

  // Finds and loads the kernel, so that a later call only launches: before a capture, say.
  void prepare(const Attention& attention) {
    Exception::check(vitune_prepare(handle_, &attention.desc()));
  }

  // The scratch memory that a call needs on this device; prepares the problem.
  std::size_t workspace_bytes(const Attention& attention) {
    std::size_t bytes = 0;
    Exception::check(vitune_workspace_bytes(handle_, &attention.desc(), &bytes));
    return bytes;
  }

  // Launches on `stream` (a CUstream or cudaStream_t; null: the default stream) and returns at
  // once.
  void forward(const Attention& attention, const AttentionTensors& tensors,
               void* stream = nullptr) {
    Exception::check(try_forward(attention, tensors, stream));
  }
  // The same without exceptions, for calls that have an answer to a failure: VITUNE_NOT_PREPARED in
  // a capture, say.
  vitune_status try_forward(const Attention& attention, const AttentionTensors& tensors,
                            void* stream = nullptr) noexcept {
    const AttentionTensors& t = tensors;
    const vitune_attention_desc* desc = &attention.desc();
    vitune_attention_desc bounded;
    if ((t.q.bytes() | t.k.bytes() | t.v.bytes() | t.out.bytes() | t.bias.bytes() | t.mask.bytes() |
         t.lse.bytes()) != 0) {
      bounded = with_bounds(*desc, t);
      desc = &bounded;
    }
    return vitune_attention_forward(handle_, desc, t.q.data(), t.k.data(), t.v.data(),
                                    t.bias.data(), t.mask.data(), t.out.data(),
                                    static_cast<float*>(t.lse.data()), t.workspace.data(),
                                    static_cast<std::size_t>(t.workspace.bytes()), stream);
  }

  // Says which kernel would serve. Loads and launches nothing.
  KernelSelection query(const Attention& attention) const {
    vitune_selection c = VITUNE_SELECTION_INIT;
    Exception::check(vitune_query(handle_, &attention.desc(), &c));
    return selection_of(c);
  }

  // The same for problems of any operator by their text, "attention bf16 b=32 h=12 n=197 d=64".
  void prepare(const std::string& problem) {
    Exception::check(vitune_prepare_text(handle_, problem.c_str()));
  }
  std::size_t workspace_bytes(const std::string& problem) {
    std::size_t bytes = 0;
    Exception::check(vitune_workspace_bytes_text(handle_, problem.c_str(), &bytes));
    return bytes;
  }
  KernelSelection query(const std::string& problem) const {
    vitune_selection c = VITUNE_SELECTION_INIT;
    Exception::check(vitune_query_text(handle_, problem.c_str(), &c));
    return selection_of(c);
  }
  // Describes the problem and the kernel that would serve it, in lines for people.
  std::string explain(const std::string& problem) const {
    std::size_t length = 0;
    Exception::check(vitune_explain_text(handle_, problem.c_str(), nullptr, 0, &length));
    std::string text(length + 1, '\0');
    Exception::check(
        vitune_explain_text(handle_, problem.c_str(), text.data(), text.size(), &length));
    text.resize(std::min(length, text.size() - 1));
    return text;
  }

  // The same for a Problem.
  void prepare(const Problem& problem) { prepare(problem.text()); }
  std::size_t workspace_bytes(const Problem& problem) { return workspace_bytes(problem.text()); }
  KernelSelection query(const Problem& problem) const { return query(problem.text()); }
  std::string explain(const Problem& problem) const { return explain(problem.text()); }

  // Launches a problem as forward() does; `tensors`: Problem::addresses(). `workspace`: scratch
  // memory with its size, of workspace_bytes() at least and aligned to 256.
  void run(const Problem& problem, AddressView tensors, DeviceOutput workspace = {},
           void* stream = nullptr) {
    Exception::check(try_run(problem, tensors, workspace, stream));
  }
  // The same without exceptions.
  vitune_status try_run(const Problem& problem, AddressView tensors, DeviceOutput workspace = {},
                        void* stream = nullptr) noexcept {
    return vitune_run(handle_, problem.get(), tensors.data(), tensors.size(), workspace.data(),
                      static_cast<std::size_t>(workspace.bytes()), stream);
  }

  vitune_stats stats() const {
    vitune_stats stats = VITUNE_STATS_INIT;
    Exception::check(vitune_context_stats(handle_, &stats));
    return stats;
  }

  // Takes over new winners; returns how many problems are now served by another kernel.
  int refresh() {
    std::int32_t changed = 0;
    Exception::check(vitune_context_refresh(handle_, &changed));
    return changed;
  }

  // Writes what was asked for without a winner to the database: `vitune tune --from-misses`.
  void flush() { Exception::check(vitune_context_flush(handle_)); }

  // For the C interface; stays this object's. Null after close() and after a move.
  vitune_context* get() const noexcept { return handle_; }

 private:
  static KernelSelection selection_of(const vitune_selection& c) {
    // clang-format off: one line per kind of field
    return {static_cast<Served>(c.outcome),
            c.loaded != 0,
            c.compiled != 0,
            c.low_confidence != 0,
            c.cold_us,
            c.warm_us,
            c.predicted_us,
            c.max_error,
            c.rms_error,
            c.problem,
            c.row,
            c.config,
            c.kernel_key,
            c.source,
            c.reason};
    // clang-format on
  }

  using Log = std::function<void(LogSeverity, std::string_view)>;

  static void pass_on(void* user, std::int32_t level, const char* message) {
    try {
      (*static_cast<const Log*>(user))(static_cast<LogSeverity>(level), message);
    } catch (...) {  // no exception may cross the C interface
    }
  }
  static vitune_attention_desc with_bounds(vitune_attention_desc desc,
                                           const AttentionTensors& t) noexcept {
    if (t.q.bytes() != 0) desc.q_bytes = t.q.bytes();
    if (t.k.bytes() != 0) desc.k_bytes = t.k.bytes();
    if (t.v.bytes() != 0) desc.v_bytes = t.v.bytes();
    if (t.out.bytes() != 0) desc.o_bytes = t.out.bytes();
    if (t.bias.bytes() != 0) desc.bias_bytes = t.bias.bytes();
    if (t.mask.bytes() != 0) desc.mask_bytes = t.mask.bytes();
    if (t.lse.bytes() != 0) desc.lse_bytes = t.lse.bytes();
    return desc;
  }

  std::unique_ptr<Log> log_;  // its address is the library's; outlives the handle
  vitune_context* handle_ = nullptr;
};

}  // namespace cpp
}  // namespace vitune

#include "vitune/model.hpp"  // Model and Session, which need a Context

#endif  // VITUNE_VITUNE_HPP_
