// tests/generator/fake_compile_worker.cpp -- A compile worker that misbehaves on request.
//
// First argument: how to start ("real" is the real worker). A job's main text then says what to do
// with it, so that a test sees the same pool before, during and after the mischief.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "core/frame.h"
#include "generator/compile_pool.h"
#include "generator/compile_protocol.h"
#include "tests/generator/elf_image.h"

namespace vitune {
namespace {

constexpr int kSocket = 3;

void sleep_for_ever() {
  for (;;) pause();
}

void write_raw(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(kSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

[[noreturn]] void burn_for_ever() {
  for (volatile std::uint64_t turns = 0;;) turns = turns + 1;
}

CompileResult canned_result() {
  CompileResult result;
  result.status = CompileStatus::kOk;
  result.facts = {32, 8, 256, 1.5};
  result.cubin = test::elf_image();
  result.log = "canned";
  return result;
}

Frame reply(std::uint64_t id, const CompileResult& result) {
  return {kCompileReply, id, encode(result)};
}

// Returns only when as many workers as `count` are here at the same time.
void meet(const std::filesystem::path& folder, std::ptrdiff_t count) {
  std::ofstream(folder / std::to_string(getpid())) << "here";
  const auto present = [&] {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  };
  while (present() < count) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

// Reserves memory until the limit; true if there is none.
bool reserve_without_end() {
  for (int i = 0; i < 64; ++i) {
    void* const part = mmap(nullptr, std::size_t{1} << 30, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (part == MAP_FAILED) return false;
  }
  return true;
}

// Writes so many bytes to stderr; false if nobody takes them.
bool chatter(std::size_t size) {
  const std::string text(size, 'x');
  return write(STDERR_FILENO, text.data(), text.size()) == static_cast<ssize_t>(size);
}

void spread_to_grandchild() {
  if (fork() == 0) sleep_for_ever();  // holds the socket open
  _exit(0);
}

// Does something else than reply to a job; false if it is to be answered after all.
bool misbehave(const std::string& what, std::uint64_t id) {
  const std::string frame = encode_frame(reply(id, canned_result()));
  if (what == "burn") burn_for_ever();
  if (what == "hang") sleep_for_ever();
  if (what == "stop") raise(SIGSTOP);
  if (what == "segv") raise(SIGSEGV);
  if (what == "exit 0") _exit(0);
  if (what == "be killed") raise(SIGKILL);
  if (what == "half frame") return write_raw(frame.substr(0, frame.size() / 2)), _exit(0), true;
  if (what == "dribble") return write_raw(frame.substr(0, 10)), sleep_for_ever(), true;
  if (what == "garbage")
    return write_raw("this is no frame at all, is it?"), sleep_for_ever(), true;
  if (what == "huge length") {
    std::string lie = frame;
    lie[19] = '\x7f';  // the length's highest byte
    return write_raw(lie), sleep_for_ever(), true;
  }
  if (what == "wrong id") return write_frame(kSocket, reply(id + 1, canned_result())), true;
  if (what == "no map") return write_frame(kSocket, {kCompileReply, id, "\x81\x81\x81"}), true;
  if (what == "bad cubin") {
    CompileResult result = canned_result();
    result.cubin.resize(result.cubin.size() - 1);
    return write_frame(kSocket, reply(id, result)), true;
  }
  if (what == "close") return close(kSocket), sleep_for_ever(), true;
  if (what == "grandchild") spread_to_grandchild();
  if (what == "last words") {
    const std::string words = "ptxas says goodbye";
    if (write(STDERR_FILENO, words.data(), words.size()) < 0) return true;
    raise(SIGABRT);
  }
  if (what == "memory" && !reserve_without_end()) raise(SIGABRT);
  if (what == "flood") {
    while (chatter(1 << 16)) continue;
  }
  if (what == "chatter") chatter(128 << 10);
  return false;
}

int serve(const std::string& start, const std::string& argument) {
  FrameParser parser;
  while (const auto frame = read_frame(kSocket, parser)) {
    const auto job = decode_job(frame->payload);
    if (!job) return 1;
    if (start == "meet") meet(argument, 2);
    // The first worker ends at it; the next finds its mark.
    if (job->main.ends_with(" once") && !std::filesystem::exists(argument)) {
      std::ofstream(argument) << "here";
      raise(job->main == "stop once" ? SIGSTOP : job->main == "end once" ? SIGTERM : SIGKILL);
    }
    if (misbehave(job->main, frame->id)) continue;
    CompileResult result = canned_result();
    if (job->main == "error") result = {CompileStatus::kError, {}, {}, "k.cu(1): error: no"};
    write_frame(kSocket, reply(frame->id, result));
    if (job->main == "twice") write_frame(kSocket, reply(frame->id, result));
  }
  return 0;
}

int run(const std::string& start, const std::string& argument) {
  if (start == "real") return run_compile_worker();
  if (start == "die") return 7;
  if (start == "silent") sleep_for_ever();
  if (start == "babble") return write_raw("hello, it is me, the worker you asked for"), 0;
  CompileHello hello;
  hello.compiler_version = "nvrtc 13.0 0123456789ab";
  if (start == "other protocol") hello.protocol = kCompileProtocol + 1;
  if (start == "changing") hello.compiler_version += std::to_string(getpid());
  if (start == "no compiler") hello = {kCompileProtocol, "", "no usable libnvrtc in its folders"};
  write_frame(kSocket, {kCompileHello, 0, encode(hello)});
  if (start == "hello and die") return 0;
  return serve(start, argument);
}

}  // namespace
}  // namespace vitune

int main(int argc, char** argv) {
  try {
    return vitune::run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  } catch (const std::exception&) {
    return 1;
  }
}
