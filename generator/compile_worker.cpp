// generator/compile_worker.cpp -- The process that runs NVRTC for the compile pool.
// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <new>

#include "core/env.h"
#include "core/error.h"
#include "core/frame.h"
#include "generator/compile_log.h"
#include "generator/compile_pool.h"
#include "generator/compile_protocol.h"

namespace vitune {
namespace {

constexpr int kSocket = 3;

// A backstop for a parent that is stopped and cannot kill us: SIGXCPU once this job has used twice
// its deadline in processor time.
void limit_processor_time(std::chrono::milliseconds deadline) {
  rusage used{};
  rlimit limit{};
  if (getrusage(RUSAGE_SELF, &used) != 0 || getrlimit(RLIMIT_CPU, &limit) != 0) return;
  const auto budget = std::chrono::ceil<std::chrono::seconds>(2 * deadline).count() + 1;
  const auto target = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec + budget);
  limit.rlim_cur = std::min(target, limit.rlim_max);
  setrlimit(RLIMIT_CPU, &limit);
}

CompileResult failure(CompileStatus status, std::string_view why) {
  CompileResult result;
  result.status = status;
  result.log = bounded_log(why);
  return result;
}

CompileResult serve(const Compiler& compiler, const CompileJob& job) {
  CompileRequest request{assemble(job.main), job.arch, job.entry, job.line_info};
  if (request.source.digest() != job.source) {
    throw Error(ErrorCode::kFailure,
                "the worker's embedded templates differ from the caller's: both must be the same "
                "build of the program");
  }
  return compiler.compile(request);
}

// The reply's payload; a cubin too large for a frame becomes an error.
std::string reply_to(const Compiler& compiler, const CompileJob& job) {
  CompileResult result;
  try {
    result = serve(compiler, job);
  } catch (const Error& error) {
    result = failure(CompileStatus::kError, error.what());
  }
  std::string payload = encode(result);
  if (payload.size() <= kMaxPayload) return payload;
  return encode(failure(
      CompileStatus::kError,
      "the cubin of " + std::to_string(result.cubin.size()) + " bytes is too large for a reply"));
}

int serve_jobs(const Compiler& compiler) {
  FrameParser parser;
  while (const auto frame = read_frame(kSocket, parser)) {
    const auto job = frame->type == kCompileJob ? decode_job(frame->payload) : std::nullopt;
    if (!job) return 1;
    limit_processor_time(job->deadline);
    try {
      write_frame(kSocket, {kCompileReply, frame->id, reply_to(compiler, *job)});
    } catch (const std::bad_alloc&) {
      // The state of NVRTC is unknown now: report and exit.
      const auto result = failure(CompileStatus::kCrash, "out of memory while compiling");
      write_frame(kSocket, {kCompileReply, frame->id, encode(result)});
      return 1;
    }
  }
  return 0;
}

}  // namespace

int run_compile_worker() {
  try {
    // A compiler that looks for files where it runs finds nothing a user can write there.
    if (chdir("/") != 0) return 1;
    std::shared_ptr<const Compiler> compiler;
    CompileHello hello;
    try {
      compiler = Compiler::open(read_environment());
      hello.compiler_version = compiler->version();
    } catch (const Error& error) {
      hello.problem = error.what();
    }
    write_frame(kSocket, {kCompileHello, 0, encode(hello)});
    return compiler ? serve_jobs(*compiler) : 0;
  } catch (const std::exception&) {
    return 1;  // the parent is gone or speaks another language; there is nobody to tell
  }
}

}  // namespace vitune
