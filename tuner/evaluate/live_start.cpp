// tuner/evaluate/live_start.cpp -- How a live evaluator gets its devices, its compiler and its
// judge ready.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "tuner/evaluate/live_evaluator.h"
#include "tuner/judge/support_kernels.h"

namespace vitune {

LiveEvaluator::LiveEvaluator(LiveOptions options, LogSink log_sink, const std::atomic<bool>& stop)
    : options_(std::move(options)),
      log_sink_(std::move(log_sink)),
      stop_(stop),
      pool_(options_.compile),
      cache_(options_.cache_bytes) {
  start_devices();
  compiler_version_ = pool_.compiler_version();
  install_support_kernels();
}

void LiveEvaluator::check_stop() const {
  if (stop_) throw Error(ErrorCode::kInterrupted, "interrupted; what was measured is saved");
}

void LiveEvaluator::no_device_left() const {
  std::string reasons;
  for (const auto& client : clients_) {
    if (client->lost()) reasons += (reasons.empty() ? "" : "; ") + client->problem();
  }
  throw Error(ErrorCode::kNoDevice, "no usable GPU: " + reasons);
}

void LiveEvaluator::start_devices() {
  for (const int ordinal : options_.devices) {
    BenchClientOptions bench = options_.bench;
    bench.ordinal = ordinal;
    clients_.push_back(std::make_unique<BenchClient>(bench, log_sink_));
  }
  if (clients_.empty()) throw Error(ErrorCode::kUsage, "no device was named to tune on");
  await(BenchClient::State::kAwaitingSupport);
  keep_one_kind();
  flying_.resize(clients_.size());
}

// Steps all clients until each is in `state` or lost.
void LiveEvaluator::await(BenchClient::State state) {
  const auto there = [&](const auto& client) {
    client->step();
    return client->lost() || client->state() == state;
  };
  // Not all_of, which would leave the later ones standing.
  while (static_cast<std::size_t>(std::count_if(clients_.begin(), clients_.end(), there)) <
         clients_.size()) {
    check_stop();
    poll_workers(kSlice);
  }
  const bool none = std::all_of(clients_.begin(), clients_.end(),
                                [](const auto& client) { return client->lost(); });
  if (none) no_device_left();
}

void LiveEvaluator::keep_one_kind() {
  const auto first = std::find_if(clients_.begin(), clients_.end(),
                                  [](const auto& client) { return !client->lost(); });
  device_ = *(*first)->device();
  std::vector<std::unique_ptr<BenchClient>> kept;
  for (auto& client : clients_) {
    const std::string why =
        client->lost() ? client->problem()
        : client->device()->key() == device_.key()
            ? ""
            : formatted("{} is of another kind than {}", client->device()->name, device_.name);
    if (why.empty())
      kept.push_back(std::move(client));
    else
      log(log_sink_, LogLevel::kWarning, "left out: " + why);
  }
  clients_ = std::move(kept);
}

void LiveEvaluator::install_support_kernels() {
  const CompileRequest support = support_compile_request(device_.arch(), {});
  const Variant variant =
      compile_now(kernel_key(support, compiler_version_), [&] { return support; });
  if (variant->status != CompileStatus::kOk) {
    throw Error(ErrorCode::kFailure,
                formatted("the kernels that draw inputs and compare outputs do not compile for {} "
                          "with {}: {}",
                          device_.arch(), compiler_version_, variant->log));
  }
  for (auto& client : clients_) client->set_support(variant->cubin);
  await(BenchClient::State::kIdle);
}

void LiveEvaluator::ask_for_judge() {
  const Operator& op = context_.problem->op();
  if (judge_of_ == &op) return;
  const CompileRequest request = judge_compile_request(device_.arch(), op);
  const Digest key = kernel_key(request, compiler_version_);
  const Variant known = cache_.find(key);
  if (!known) {
    pool_.submit(next_compile_, request);
    compiling_.emplace(next_compile_++, key);
  }
  judge_of_ = &op;
  judge_key_ = key;
  judge_ = known;
}

bool LiveEvaluator::judge_is_here() {
  if (!judge_) return false;
  if (judge_->status == CompileStatus::kOk) return true;
  const std::string operator_name(std::exchange(judge_of_, nullptr)->name());
  throw Error(ErrorCode::kFailure,
              formatted("the kernels that judge candidates of '{}' do not compile for {} with {}: "
                        "{}",
                        operator_name, device_.arch(), compiler_version_, judge_->log));
}

}  // namespace vitune
