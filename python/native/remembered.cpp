// python/native/remembered.cpp -- Finds a call among those that are known, launches it, or asks
// Python and learns from what that does.
// SPDX-License-Identifier: Apache-2.0
#include "python/native/remembered.h"

#include <dlfcn.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "python/native/host.h"
#include "python/native/refusal.h"
#include "python/native/renewed.h"
#include "python/native/tensors.h"

namespace vitune::torch_ops {
namespace {

constexpr std::size_t kMostArguments = 16, kMostResults = 4, kMostKinds = 1024;
constexpr int kMostTries = 6;  // of a kind that cannot be understood

std::atomic<uint64_t> remembered{0};

// A call's arguments, taken from the stack.
struct Arguments {
  std::array<Held, kMostArguments> tensors;          // null where there is none
  std::array<StableIValue, kMostArguments> words{};  // of tensors nothing
  std::array<bool, kMostArguments> given{};          // of words that may be missing
};

// What is known of a tensor's memory.
struct Memory {
  char* address = nullptr;
  int64_t bytes = 0;
  bool holds(const char* at) const { return at >= address && at < address + bytes; }
};

struct NotedLaunch {
  std::string text;
  std::vector<char*> addresses;
  uint64_t scratch_bytes;
};

// What Python has said of the call that this thread is in.
struct Lesson {
  bool is_wanted = false, has_others = false, is_interrupt = false;
  std::vector<NotedLaunch> launches;
  std::string error;
};
thread_local Lesson lesson;

using Key = std::vector<int64_t>;
using CallPointer = std::shared_ptr<const RememberedCall>;

struct Kind {
  Key key;
  CallPointer candidate;  // what was understood once
  CallPointer known;      // twice alike
  int tries = 0;
};

struct Table {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::vector<Kind>> kinds;
  std::size_t count = 0;

  static Table& of(std::size_t index) {
    return renewed_after_fork<std::array<Table, kRememberedCount>>()[index];
  }
  // Of this key; made if there is none. The lock is held.
  Kind& kind_of(const Key& key, uint64_t hash) {
    std::vector<Kind>& alike = kinds[hash];
    for (Kind& kind : alike) {
      if (kind.key == key) return kind;
    }
    if (++count > kMostKinds) {
      kinds.clear();
      count = 1;
    }
    return kinds[hash].emplace_back(Kind{key, {}, {}, 0});
  }
};

struct Schema {
  std::string arguments;
  std::size_t results = 0;
  std::string python;  // the operator that Python computes
};
std::array<Schema, kRememberedCount> schemas;  // written while the package is imported

Arguments take_arguments(const Schema& schema, const StableIValue* stack) {
  Arguments taken;
  for (std::size_t i = 0; i < schema.arguments.size(); ++i) {
    switch (schema.arguments[i]) {
      case 't':
        taken.tensors[i] = take_tensor(stack[i]);
        break;
      case 'o':
        taken.tensors[i] = take_optional_tensor(stack[i]);
        break;
      case 'w':
        taken.words[i] = stack[i];
        break;
      default:
        if (const auto word = take<std::optional<int64_t>>(stack[i])) {
          taken.words[i] = static_cast<StableIValue>(*word);
          taken.given[i] = true;
        }
    }
  }
  return taken;
}

// Gives them back, for another operator.
void put_arguments(const Schema& schema, Arguments arguments, StableIValue* stack) {
  using torch::stable::detail::from;
  for (std::size_t i = 0; i < schema.arguments.size(); ++i) {
    switch (schema.arguments[i]) {
      case 't':
        stack[i] = give(std::move(arguments.tensors[i]));
        break;
      case 'o': {
        AtenTensorHandle const handle = arguments.tensors[i].release();
        stack[i] =
            from(handle != nullptr ? std::optional(torch::stable::Tensor(handle)) : std::nullopt);
        break;
      }
      case 'w':
        stack[i] = arguments.words[i];
        break;
      default:
        stack[i] = from(arguments.given[i] ? std::optional(static_cast<int64_t>(arguments.words[i]))
                                           : std::nullopt);
    }
  }
}

Memory memory_of(AtenTensorHandle tensor, const Operand& operand) {
  int64_t elements = 1;
  for (int i = 0; i < operand.view.rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (operand.view.shape[at] == 0) return {};
    elements += (operand.view.shape[at] - 1) * operand.view.strides[at];
  }
  const auto size = static_cast<int64_t>(aoti_torch_dtype_element_size(operand.dtype));
  return {address_of(tensor), elements * size};
}

// All that a launch may depend on. False for tensors of more extents than a view has.
bool write_key(const Schema& schema, const Arguments& arguments, Key& key) {
  key.clear();
  std::array<Memory, kMostArguments> memory;
  for (std::size_t i = 0; i < schema.arguments.size(); ++i) {
    AtenTensorHandle const tensor = arguments.tensors[i].get();
    if (schema.arguments[i] == 'w' || schema.arguments[i] == 'v') {
      key.push_back(arguments.given[i]);
      key.push_back(static_cast<int64_t>(arguments.words[i]));
      continue;
    }
    if (tensor == nullptr) {
      key.push_back(-1);
      continue;
    }
    const Operand operand = operand_of(tensor);
    if (operand.view.rank > kMaxRank) return false;
    memory[i] = memory_of(tensor, operand);
    key.push_back(int64_t{operand.view.rank} << 48 | int64_t{operand.dtype} << 32 |
                  int64_t{operand.device_type} << 16 | (operand.device_index & 0xFFFF));
    key.push_back(static_cast<int64_t>(reinterpret_cast<uint64_t>(memory[i].address) % 16));
    for (int k = 0; k < operand.view.rank; ++k) {
      key.push_back(operand.view.shape[static_cast<std::size_t>(k)]);
      key.push_back(operand.view.strides[static_cast<std::size_t>(k)]);
    }
  }
  // Which of them begin inside of others, and where: then an address names all of these alike.
  for (std::size_t i = 0; i < schema.arguments.size(); ++i) {
    for (std::size_t j = 0; memory[i].bytes > 0 && j < schema.arguments.size(); ++j) {
      if (i == j || !memory[j].holds(memory[i].address)) continue;
      key.push_back(static_cast<int64_t>(i << 8 | j));
      key.push_back(memory[i].address - memory[j].address);
    }
  }
  return true;
}

uint64_t hash_of(const Key& key) {
  uint64_t hash = 0;
  for (const int64_t word : key) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  }
  return hash;
}

bool is_alike(const RememberedCall& a, const RememberedCall& b) {
  const auto same_launch = [](const RememberedLaunch& one, const RememberedLaunch& other) {
    return one.text == other.text && one.slots == other.slots &&
           one.scratch_bytes == other.scratch_bytes;
  };
  const auto same_result = [](const Operand& one, const Operand& other) {
    return one.view.rank == other.view.rank && one.view.shape == other.view.shape &&
           one.view.strides == other.view.strides && one.dtype == other.dtype;
  };
  return std::equal(a.launches.begin(), a.launches.end(), b.launches.begin(), b.launches.end(),
                    same_launch) &&
         std::equal(a.results.begin(), a.results.end(), b.results.begin(), b.results.end(),
                    same_result);
}

// The tensor that has this address: one that begins there, else the only one that holds it.
std::optional<Slot> slot_of(char* address, std::span<const Memory> tensors) {
  if (address == nullptr) return Slot{};
  std::optional<Slot> inside;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].holds(address)) continue;
    const Slot slot{static_cast<int32_t>(i), address - tensors[i].address};
    if (slot.offset == 0) return slot;
    if (inside) return std::nullopt;
    inside = slot;
  }
  return inside;
}

// A result that only this call made, of a storage of its own; nothing else could be allocated anew.
bool is_fresh(AtenTensorHandle result, const Memory& memory, std::span<const Memory> others) {
  int64_t offset = 0, size = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_offset(result, &offset));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_size(result, &size));
  if (offset != 0 || size != memory.bytes) return false;
  return std::none_of(others.begin(), others.end(), [&](const Memory& other) {
    return memory.bytes > 0 && (other.holds(memory.address) || memory.holds(other.address));
  });
}

std::shared_ptr<const vitune_problem> problem_of(const std::string& text) {
  vitune_problem* problem = nullptr;
  check(api().problem_create(text.c_str(), &problem));
  return {problem, [](const vitune_problem* made) {
            api().problem_destroy(const_cast<vitune_problem*>(made));
          }};
}

// What a call is, by what Python did; nothing where that cannot be repeated. `tensors`: the memory
// of its arguments, to which that of the results is added.
CallPointer understood(const Lesson& taught, const StableIValue* results, std::size_t count,
                       std::vector<Memory> tensors) {
  if (taught.has_others || taught.launches.empty()) return {};
  auto call = std::make_shared<RememberedCall>();
  for (std::size_t i = 0; i < count; ++i) {
    AtenTensorHandle const result = reinterpret_cast<AtenTensorHandle>(results[i]);
    Operand operand = operand_of(result);
    if (operand.view.rank > kMaxRank) return {};
    const Memory memory = memory_of(result, operand);
    if (!is_fresh(result, memory, tensors)) return {};
    call->results.push_back(operand);
    tensors.push_back(memory);
  }
  for (const NotedLaunch& noted : taught.launches) {
    RememberedLaunch launch{noted.text, {}, {}, noted.scratch_bytes};
    for (char* const address : noted.addresses) {
      const std::optional<Slot> slot = slot_of(address, tensors);
      if (!slot) return {};
      launch.slots.push_back(*slot);
    }
    launch.problem = problem_of(noted.text);
    call->launches.push_back(std::move(launch));
  }
  return call;
}

CallPointer known_call(std::size_t index, const Key& key, uint64_t hash, bool& is_to_learn) {
  Table& table = Table::of(index);
  const std::lock_guard lock(table.mutex);
  Kind& kind = table.kind_of(key, hash);
  is_to_learn = kind.tries < kMostTries;
  return kind.known;
}

// A launch was refused: the kind is to be learnt anew.
void forget(std::size_t index, const Key& key, uint64_t hash) {
  Table& table = Table::of(index);
  const std::lock_guard lock(table.mutex);
  Kind& kind = table.kind_of(key, hash);
  kind.known = kind.candidate = {};
}

void learn(std::size_t index, const Key& key, uint64_t hash, const CallPointer& call) {
  Table& table = Table::of(index);
  const std::lock_guard lock(table.mutex);
  Kind& kind = table.kind_of(key, hash);
  if (call != nullptr && kind.candidate != nullptr && is_alike(*call, *kind.candidate)) {
    kind.known = call;
    kind.tries = 0;
    return;
  }
  kind.candidate = call;
  ++kind.tries;
}

// Ctrl-C, once more: PyTorch makes a RuntimeError of the first, which programs catch.
void interrupt_python() {
  if (void* const set = dlsym(RTLD_DEFAULT, "PyErr_SetInterrupt")) {
    reinterpret_cast<void (*)()>(set)();
  }
}

// Python's answer, on the stack in the place of the arguments; what it did is in the lesson.
Lesson ask_python(const Schema& schema, StableIValue* stack, bool is_to_learn) {
  const Lesson outside = std::exchange(lesson, Lesson{is_to_learn, false, false, {}, {}});
  const AOTITorchError error =
      torch_call_dispatcher(schema.python.c_str(), "", stack, TORCH_ABI_VERSION);
  Lesson taught = std::exchange(lesson, outside);
  // PyTorch keeps an exception's text to itself here: without memory, say, programs read it.
  if (taught.is_interrupt) interrupt_python();
  if (!taught.error.empty()) throw std::runtime_error(taught.error);
  TORCH_ERROR_CODE_CHECK(error);
  return taught;
}

// False where a launch was refused, or there is no memory, of which Python will speak.
bool launch_known(const Schema& schema, const RememberedCall& call, const Arguments& arguments,
                  StableIValue* stack, LaunchRemembered launch) {
  const std::size_t count = schema.arguments.size();
  std::array<AtenTensorHandle, kMostArguments + kMostResults> tensors{};
  AtenTensorHandle like = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    tensors[i] = arguments.tensors[i].get();
    if (like == nullptr) like = tensors[i];
  }
  std::array<Held, kMostResults> results;
  try {
    for (std::size_t i = 0; i < call.results.size(); ++i) {
      results[i] = empty(call.results[i].view, call.results[i].dtype, like);
      tensors[count + i] = results[i].get();
    }
    launch(call, std::span(tensors).first(count + call.results.size()));
  } catch (const std::exception&) {
    return false;  // another winner needs more scratch memory, say, or a capture one that is
                   // prepared
  }
  for (std::size_t i = 0; i < call.results.size(); ++i) stack[i] = give(std::move(results[i]));
  remembered.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace

std::vector<void*> addresses_of(const RememberedLaunch& launch, std::span<char* const> tensors) {
  std::vector<void*> addresses;
  addresses.reserve(launch.slots.size());
  for (const Slot& slot : launch.slots) {
    addresses.push_back(
        slot.tensor < 0 ? nullptr : tensors[static_cast<std::size_t>(slot.tensor)] + slot.offset);
  }
  return addresses;
}

void launch_remembered_on_gpu(const RememberedCall& call,
                              std::span<const AtenTensorHandle> tensors) {
  std::array<char*, kMostArguments + kMostResults> addresses{};
  AtenTensorHandle like = nullptr;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    addresses[i] = address_of(tensors[i]);
    if (like == nullptr) like = tensors[i];
  }
  const int32_t device = device_of(like);
  vitune_context* const context = context_of(device);
  void* const stream = current_stream(device);
  for (const RememberedLaunch& launch : call.launches) {
    Held scratch;
    if (launch.scratch_bytes > 0) {
      const View bytes{1, {static_cast<int64_t>(launch.scratch_bytes)}, {1}};
      scratch = empty(bytes, aoti_torch_dtype_uint8(), like);
    }
    const std::vector<void*> given = addresses_of(launch, addresses);
    check(api().run(context, launch.problem.get(), given.data(), given.size(),
                    address_of(scratch.get()), launch.scratch_bytes, stream));
  }
}

void run_remembered(std::size_t index, StableIValue* stack, LaunchRemembered launch) {
  const Schema& schema = schemas[index];
  Arguments arguments = take_arguments(schema, stack);
  Key key;
  key.reserve(128);
  bool is_to_learn = false;
  const bool has_key = write_key(schema, arguments, key);
  const uint64_t hash = hash_of(key);
  if (has_key) {
    if (const CallPointer known = known_call(index, key, hash, is_to_learn)) {
      if (launch_known(schema, *known, arguments, stack, launch)) return;
      forget(index, key, hash);
      is_to_learn = false;
    }
  }
  std::vector<Memory> memory;
  for (std::size_t i = 0; is_to_learn && i < schema.arguments.size(); ++i) {
    AtenTensorHandle const tensor = arguments.tensors[i].get();
    memory.push_back(tensor == nullptr ? Memory{} : memory_of(tensor, operand_of(tensor)));
  }
  put_arguments(schema, std::move(arguments), stack);
  const Lesson taught = ask_python(schema, stack, is_to_learn);
  if (!is_to_learn) return;
  CallPointer call;
  try {
    call = understood(taught, stack, schema.results, memory);
  } catch (const std::exception&) {
    // The answer is there; the call stays Python's.
  }
  learn(index, key, hash, call);
}

}  // namespace vitune::torch_ops

using namespace vitune::torch_ops;

int32_t vitune_torch_describe(const char* name, const char* arguments, int32_t results) {
  const auto* const found =
      std::find(std::begin(kRemembered), std::end(kRemembered), std::string_view(name));
  const std::string_view letters = arguments;
  if (found == std::end(kRemembered) || letters.size() > kMostArguments || results < 1 ||
      results > static_cast<int32_t>(kMostResults)) {
    return 0;
  }
  schemas[static_cast<std::size_t>(found - std::begin(kRemembered))] = {
      std::string(letters), static_cast<std::size_t>(results),
      std::string("vitune_python::") + name};
  return 1;
}
int32_t vitune_torch_is_learning(void) { return lesson.is_wanted ? 1 : 0; }
void vitune_torch_note_launch(const char* text, const uint64_t* addresses, size_t count,
                              uint64_t scratch_bytes) {
  NotedLaunch noted{text, {}, scratch_bytes};
  for (size_t i = 0; i < count; ++i) {
    noted.addresses.push_back(reinterpret_cast<char*>(addresses[i]));
  }
  lesson.launches.push_back(std::move(noted));
}
void vitune_torch_note_other(void) { lesson.has_others = true; }
void vitune_torch_note_error(const char* text, int32_t is_interrupt) {
  lesson.error = text;
  lesson.is_interrupt = is_interrupt != 0;
}
uint64_t vitune_torch_remembered(void) { return remembered.load(std::memory_order_relaxed); }
