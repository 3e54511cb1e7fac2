// cli/passes/judge_tools.cpp -- Compiles in supervised processes, loads here.
// SPDX-License-Identifier: Apache-2.0
#include "cli/passes/judge_tools.h"

#include <chrono>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "tuner/loop/tuner.h"

namespace vitune {
namespace {

CompilePoolOptions pool_options(std::vector<std::string> command) {
  CompilePoolOptions options;
  options.deadline = TuneOptions{}.compile_deadline;
  options.worker_command = std::move(command);
  return options;
}

}  // namespace

JudgeTools::JudgeTools(int device, std::vector<std::string> compile_command)
    : driver_(CudaDriver::open()),
      device_(driver_->device_info(device)),
      context_(driver_, device),
      stream_(*driver_),
      pool_(pool_options(std::move(compile_command))) {
  const auto cubins = compiled({support_compile_request(device_.arch(), {})});
  support_.emplace(*driver_, cubins.front(), device_, std::span<const Operator* const>{});
  support_->probe(*driver_, stream_);
}

void JudgeTools::add_judges(const std::vector<const Operator*>& wanted) {
  std::vector<CompileRequest> requests;
  for (const Operator* op : wanted) {
    requests.push_back(judge_compile_request(device_.arch(), *op));
  }
  const auto cubins = compiled(requests);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    support_->add_judge(*driver_, cubins[i], *wanted[i]);
  }
}

std::vector<std::vector<std::byte>> JudgeTools::compiled(
    const std::vector<CompileRequest>& requests) {
  for (std::size_t i = 0; i < requests.size(); ++i) pool_.submit(i, requests[i]);
  std::vector<std::vector<std::byte>> cubins(requests.size());
  while (pool_.pending() > 0) {
    auto done = pool_.wait(std::chrono::seconds(1));
    if (!done) continue;
    if (done->second.status != CompileStatus::kOk) {
      throw Error(ErrorCode::kFailure,
                  formatted("the kernels that judge results do not compile "
                            "for {} with {}: {}",
                            device_.arch(), pool_.compiler_version(), done->second.log));
    }
    cubins[done->first] = std::move(done->second.cubin);
  }
  return cubins;
}

}  // namespace vitune
