// cli/passes/pass_check.cpp -- Poisons, runs and judges a session's steps one by one.
// SPDX-License-Identifier: Apache-2.0
#include "cli/passes/pass_check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "core/digest.h"
#include "core/error.h"
#include "core/format.h"
#include "core/half.h"
#include "generator/operator.h"
#include "model/model_file.h"
#include "runtime/api/last_error.h"
#include "tuner/judge/verify.h"

namespace vitune {
namespace {

constexpr std::byte kPoison{0xff};  // a NaN in every floating type

CuPointer address_of(const void* pointer) {
  return static_cast<CuPointer>(reinterpret_cast<std::uintptr_t>(pointer));
}

// Elements of a standard normal draw, or whole numbers of the types that have no others.
std::vector<std::byte> drawn(const ModelBuffer& buffer, std::mt19937_64& engine) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(buffer.bytes()));
  const std::size_t size = static_cast<std::size_t>(model_type_bytes(buffer.type));
  std::normal_distribution<float> normal;
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    const float value = normal(engine);
    std::uint16_t bits = buffer.type == "bf16" ? rounded_bf16(value) : rounded_fp16(value);
    if (size == 4) std::memcpy(&bytes[at], &value, size);
    if (size == 2) std::memcpy(&bytes[at], &bits, size);
    if (size == 1) bytes[at] = std::byte(engine() % (buffer.type == "bool" ? 2 : 256));
  }
  return bytes;
}

// Calls `run` with the first byte and the length of each run of bytes that a tensor's elements are.
template <typename Run>
void each_run(const TensorSpec& spec, const Run& run) {
  const auto size = element_bytes(spec.type);
  const bool is_dense = spec.strides[3] == 1 || spec.extents[3] == 1;
  for (std::int64_t a = 0; a < spec.extents[0]; ++a) {
    for (std::int64_t b = 0; b < spec.extents[1]; ++b) {
      for (std::int64_t c = 0; c < spec.extents[2]; ++c) {
        const std::int64_t row = a * spec.strides[0] + b * spec.strides[1] + c * spec.strides[2];
        if (is_dense) run(row * size, spec.extents[3] * size);
        for (std::int64_t d = 0; !is_dense && d < spec.extents[3]; ++d) {
          run((row + d * spec.strides[3]) * size, size);
        }
      }
    }
  }
}

double part(double error, double bound) { return error == 0 ? 0 : error / bound; }

}  // namespace

double StepVerdict::part_of_bound() const {
  return std::max(part(error.max_error, error.max_bound), part(error.rms_error, error.rms_bound));
}

bool PassVerdict::is_right() const {
  return whole.empty() &&
         std::ranges::all_of(steps, [](const StepVerdict& step) { return step.why.empty(); });
}

PassCheck::PassCheck(ModelSession& session, const GpuTools& tools, StepLaunch launch)
    : session_(session),
      tools_(tools),
      launch_(launch ? std::move(launch)
                     : [&session](std::size_t step,
                                  CuStreamTag* stream) { session.launch_step(step, stream); }),
      lives_(lives()),
      record_(tools.context.driver(), sizeof(LaunchRecord)) {}

std::vector<PassCheck::Life> PassCheck::lives() const {
  const BoundModel& bound = session_.bound();
  const auto count = static_cast<std::int64_t>(bound.steps.size());
  std::vector<Life> lives(bound.buffers.size(), Life{count, -1, -1});
  for (std::int64_t i = 0; i < count; ++i) {
    const ModelStep& step = bound.steps[static_cast<std::size_t>(i)];
    const std::vector<TensorSpec> specs = step.problem->op().tensors(*step.problem);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      if (!step.tensors[t]) continue;
      Life& life = lives[step.tensors[t]->buffer];
      if (specs[t].role == Role::kInput) life.last_read = i;
      if (specs[t].role == Role::kInput) continue;
      life.written = std::min(life.written, i);
      life.writer = i;
    }
  }
  for (const std::size_t input : bound.inputs) lives[input] = {-1, count, -1};
  for (const std::size_t output : bound.outputs) lives[output].last_read = count;
  return lives;
}

PassCheck::Range PassCheck::range_of(std::size_t buffer) const {
  const auto begin = static_cast<std::size_t>(session_.plan().buffers[buffer].value());
  return {begin, begin + static_cast<std::size_t>(session_.bound().buffers[buffer].bytes())};
}

// In the arena, written before that step and read by it or later.
bool PassCheck::is_live(std::size_t buffer, std::int64_t before_step) const {
  const Life& life = lives_[buffer];
  return session_.plan().buffers[buffer].has_value() && life.written < before_step &&
         life.last_read >= before_step;
}

void PassCheck::download_arena(std::vector<std::byte>& bytes) const {
  tools_.stream.synchronize();
  bytes.resize(session_.arena().size());
  session_.arena().download(bytes);
}

void PassCheck::upload_arena(const std::vector<std::byte>& bytes) const {
  const CudaDriver& driver = tools_.context.driver();
  driver.check(driver.api().memcpy_htod(session_.arena().address(), bytes.data(), bytes.size()),
               "cuMemcpyHtoD");
  // As DeviceBuffer::upload(): the last piece may be on its way still.
  driver.check(driver.api().stream_synchronize(nullptr), "cuStreamSynchronize");
}

// All other memory of the arena is poison.
void PassCheck::draw_inputs(std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  before_.assign(session_.arena().size(), kPoison);
  for (const std::size_t input : session_.bound().inputs) {
    std::ranges::copy(drawn(session_.bound().buffers[input], engine),
                      before_.begin() + static_cast<std::ptrdiff_t>(range_of(input).begin));
  }
  upload_arena(before_);
}

// Reads the arena as it is before the step; what holds no value by now is poison.
void PassCheck::poison_dead(std::size_t step) {
  download_arena(after_);
  before_.assign(after_.size(), kPoison);
  for (std::size_t b = 0; b < lives_.size(); ++b) {
    if (!is_live(b, static_cast<std::int64_t>(step))) continue;
    const Range range = range_of(b);
    std::copy(after_.begin() + static_cast<std::ptrdiff_t>(range.begin),
              after_.begin() + static_cast<std::ptrdiff_t>(range.end),
              before_.begin() + static_cast<std::ptrdiff_t>(range.begin));
  }
  upload_arena(before_);
}

// Tensors that are views of one allocation lie in the session as they do in the workload.
void PassCheck::copy_inputs(std::size_t step, const Workload& workload) const {
  const std::vector<std::uintptr_t> mine = workload.addresses();
  std::map<int, CuPointer> starts;
  for (std::size_t t = 0; t < mine.size(); ++t) {
    const TensorSpec& spec = workload.tensors()[t];
    if (!spec.given || spec.role != Role::kInput) continue;
    const CuPointer from = address_of(session_.tensors(step)[t]);
    const CuPointer start = from - static_cast<CuPointer>(spec.offset * element_bytes(spec.type));
    if (spec.shared >= 0 && starts.emplace(spec.shared, start).first->second != start) {
      throw Error(ErrorCode::kFailure,
                  formatted("'{}': its {} does not lie where its operator says, beside the others",
                            workload.problem().text(), spec.name));
    }
    tools_.stream.copy(mine[t], from, static_cast<std::size_t>(spec.bytes()));
  }
}

void PassCheck::copy_outputs(std::size_t step, const Workload& workload) const {
  const std::vector<std::uintptr_t> mine = workload.addresses();
  for (std::size_t t = 0; t < mine.size(); ++t) {
    const TensorSpec& spec = workload.tensors()[t];
    if (!spec.given || spec.role != Role::kOutput) continue;
    tools_.stream.copy(mine[t], address_of(session_.tensors(step)[t]),
                       static_cast<std::size_t>(spec.bytes()));
  }
}

std::string PassCheck::results_wrong(Workload& workload, const Reference& reference,
                                     ErrorFigures& error) {
  tools_.stream.fill8(record_.address(), 0, record_.size());
  reference.compare(workload, record_.address() + offsetof(LaunchRecord, findings));
  tools_.stream.synchronize();
  LaunchRecord record;
  record_.download(std::as_writable_bytes(std::span(&record, 1)));
  error = worst_figures(record, workload.tensors(), reference.bounds());
  return judge(record, workload.tensors(), reference.bounds(), record.inputs).value_or("");
}

// Which bytes of the arena are elements of the step's results, or its scratch memory.
std::vector<bool> PassCheck::results_of(std::size_t step) const {
  std::vector<bool> written(session_.arena().size());
  const auto mark = [&](std::int64_t begin, std::int64_t count) {
    std::fill_n(written.begin() + begin, count, true);
  };
  if (session_.scratch_bytes(step) > 0) {
    mark(session_.plan().scratch[step], session_.scratch_bytes(step));
  }
  const Problem& problem = *session_.bound().steps[step].problem;
  const std::vector<TensorSpec> specs = problem.op().tensors(problem);
  for (std::size_t t = 0; t < specs.size(); ++t) {
    if (!specs[t].given || specs[t].role != Role::kOutput) continue;
    const auto start = static_cast<std::int64_t>(address_of(session_.tensors(step)[t]) -
                                                 session_.arena().address());
    each_run(specs[t], [&](std::int64_t at, std::int64_t count) { mark(start + at, count); });
  }
  return written;
}

std::string PassCheck::owner_text(std::size_t buffer) const {
  const std::int64_t writer = lives_[buffer].writer;
  if (writer < 0) return formatted("the input '{}'", session_.bound().buffers[buffer].name);
  const ModelStep& step = session_.bound().steps[static_cast<std::size_t>(writer)];
  return formatted("the result of step {} ({})", writer, step.at.empty() ? "no module" : step.at);
}

// The values that the step has changed beside its results, as a predicate; those that are needed
// later come first.
std::string PassCheck::changed_elsewhere(std::size_t step) const {
  const std::vector<bool> results = results_of(step);
  std::vector<bool> own(lives_.size());
  const ModelStep& bound = session_.bound().steps[step];
  const std::vector<TensorSpec> specs = bound.problem->op().tensors(*bound.problem);
  for (std::size_t t = 0; t < specs.size(); ++t) {
    if (specs[t].given && specs[t].role == Role::kOutput) own[bound.tensors[t]->buffer] = true;
  }
  for (std::size_t b = 0; b < lives_.size(); ++b) {
    const bool is_needed = is_live(b, static_cast<std::int64_t>(step)) &&
                           lives_[b].last_read > static_cast<std::int64_t>(step);
    if (!is_needed) continue;
    const Range range = range_of(b);
    std::size_t changed = 0;
    for (std::size_t at = range.begin; at < range.end; ++at) {
      changed += before_[at] != after_[at] && !(own[b] && results[at]) ? 1 : 0;
    }
    if (changed == 0) continue;
    return formatted("changed {} bytes of {}, which is needed later", changed, owner_text(b));
  }
  std::size_t changed = 0;
  for (std::size_t at = 0; at < before_.size(); ++at) {
    changed += before_[at] != after_[at] && !results[at] ? 1 : 0;
  }
  return changed == 0 ? "" : formatted("changed {} bytes beside its results", changed);
}

StepVerdict PassCheck::judge_step(std::size_t step) {
  StepVerdict verdict{step, {}, ""};
  poison_dead(step);
  Workload workload(tools_, session_.bound().steps[step].problem);
  workload.poison_outputs();
  copy_inputs(step, workload);
  const Reference reference(tools_, workload);
  launch_(step, tools_.stream.get());
  download_arena(after_);
  copy_outputs(step, workload);
  verdict.why = results_wrong(workload, reference, verdict.error);
  if (verdict.why.empty()) verdict.why = changed_elsewhere(step);
  return verdict;
}

std::vector<std::vector<std::byte>> PassCheck::results() const {
  std::vector<std::byte> arena;
  download_arena(arena);
  std::vector<std::vector<std::byte>> results;
  for (const std::size_t output : session_.bound().outputs) {
    const Range range = range_of(output);
    results.emplace_back(arena.begin() + static_cast<std::ptrdiff_t>(range.begin),
                         arena.begin() + static_cast<std::ptrdiff_t>(range.end));
  }
  return results;
}

std::vector<std::string> PassCheck::weight_digests() const {
  const CudaDriver& driver = tools_.context.driver();
  std::vector<std::string> digests;
  for (std::size_t b = 0; b < lives_.size(); ++b) {
    if (session_.plan().buffers[b]) continue;
    const ModelBuffer& buffer = session_.bound().buffers[b];
    std::vector<std::byte> bytes(static_cast<std::size_t>(buffer.bytes()));
    driver.check(
        driver.api().memcpy_dtoh(bytes.data(), session_.model().weights_of(buffer), bytes.size()),
        "cuMemcpyDtoH");
    digests.push_back(Sha256().append(bytes).finish().hex());
  }
  return digests;
}

// Runs the pass as a caller does, on the inputs that the arena holds.
std::string PassCheck::graph_differs() {
  const std::vector<std::vector<std::byte>> wanted = results();
  poison_dead(0);
  const std::vector<const void*> inputs(session_.inputs(), nullptr);
  const std::vector<void*> outputs(session_.places() - session_.inputs(), nullptr);
  if (session_.run(inputs, outputs, tools_.stream.get()) != VITUNE_OK) {
    throw Error(ErrorCode::kFailure, last_error());
  }
  if (results() == wanted) return "";
  return "the pass as one graph gives other bits than its steps one by one";
}

PassVerdict PassCheck::check(std::uint64_t seed, const std::atomic<bool>& stop,
                             const std::function<void(std::size_t)>& tell) {
  PassVerdict verdict;
  const std::vector<std::string> weights = weight_digests();
  draw_inputs(seed);
  for (std::size_t step = 0; step < session_.bound().steps.size() && !stop; ++step) {
    if (tell) tell(step);
    try {
      verdict.steps.push_back(judge_step(step));
    } catch (const Error& error) {
      // The plain implementation is not finite: nothing can be said from here on.
      if (error.code() != ErrorCode::kNoDevice) throw;
      verdict.steps.push_back({step, {}, "has inputs to which there is no finite answer"});
      return verdict;
    }
  }
  if (stop) return verdict;
  if (weights != weight_digests()) {
    verdict.whole = "the weights on the device are no longer those that were loaded";
  } else if (verdict.is_right()) {
    verdict.whole = graph_differs();
  }
  return verdict;
}

}  // namespace vitune
