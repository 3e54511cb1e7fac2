// tests/core/fake_child.cpp -- A worker that misbehaves on demand; its first argument names how.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>

#include "core/child_process.h"
#include "core/frame.h"

namespace vitune {
namespace {

constexpr int kSocket = 3;

[[noreturn]] void sleep_for_good() {
  for (;;) pause();
}

void send_raw(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(kSocket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) _exit(99);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void say(std::string_view text) { write_frame(kSocket, {1, 1, std::string(text)}); }

int echo() {
  FrameParser parser;
  while (auto frame = read_frame(kSocket, parser)) write_frame(kSocket, *frame);
  return 0;
}

int ignore_everything() {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_IGN);
  say("deaf");
  sleep_for_good();
}

int stop_itself() {
  say("stopping");
  raise(SIGSTOP);
  sleep_for_good();
}

int die_by(int number) {
  signal(number, SIG_DFL);
  raise(number);
  return 98;
}

int half_frame() {
  send_raw(encode_frame({1, 1, "half of this"}).substr(0, 30));
  sleep_for_good();
}

int huge_length() {
  std::string header = encode_frame({1, 1, ""});
  header[19] = '\x80';  // 2 GiB
  send_raw(header);
  for (;;) send_raw(std::string(1 << 20, 'x'));
}

int heartbeats() {
  for (std::uint64_t id = 0;; ++id) write_frame(kSocket, {2, id, "alive"});
}

int dribble() {
  // Byte by byte and without pause: there is always something to read and never a whole frame.
  for (const char c : encode_frame({1, 1, std::string(60 << 20, 'd')})) send_raw({&c, 1});
  return 0;
}

int flood_stderr() {
  const std::string line(1 << 16, 'e');
  for (int i = 0; i < 1600; ++i) {
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) return 97;
  }
  std::cerr << "the end" << std::flush;
  say("flooded");
  return 0;
}

// Says a lot before it listens: both ends then write at once.
int talk_first() {
  FrameParser parser;
  for (int i = 0; i < 4; ++i) write_frame(kSocket, {1, 0, std::string(4 << 20, 't')});
  const auto frame = read_frame(kSocket, parser);
  say(std::to_string(frame->payload.size()));
  return 0;
}

int leave_a_grandchild() {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(600);
    sleep_for_good();
  }
  say(std::to_string(pid));
  return 0;
}

int bomb_memory() {
  std::size_t taken = 0;
  constexpr std::size_t kPiece = 16 << 20;
  while (taken < (std::size_t{8} << 30)) {
    void* piece = malloc(kPiece);
    if (piece == nullptr) break;
    memset(piece, 1, kPiece);
    taken += kPiece;
  }
  say(std::to_string(taken >> 20));
  return 0;
}

int burn_cpu() {
  for (;;) getppid();
}

int close_the_socket(int status) {
  close(kSocket);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return status;
}

int dump_environment() {
  std::string text;
  for (char** entry = environ; *entry != nullptr; ++entry) text += std::string(*entry) + '\n';
  say(text);
  return 0;
}

// Prints the fences as seen from inside, one fact a line.
int inspect() {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    // The iterator's own descriptor has been closed again by the time it is asked about.
    if (fd <= kSocket) text += "fd " + std::to_string(fd) + '\n';
    if (fd > kSocket && read_symlink(entry.path()) != "/proc/" + std::to_string(getpid()) + "/fd") {
      text += "foreign fd " + std::to_string(fd) + '\n';
    }
  }
  text += "stdin " + std::filesystem::read_symlink("/proc/self/fd/0").string() + '\n';
  text += "group " + std::string(getpgrp() == getpid() ? "own" : "foreign") + '\n';
  text += "new privileges " + std::to_string(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)) + '\n';
  int death_signal = 0;
  prctl(PR_GET_PDEATHSIG, &death_signal);
  text += "death signal " + std::to_string(death_signal) + '\n';
  rlimit core{};
  getrlimit(RLIMIT_CORE, &core);
  text += "core " + std::to_string(core.rlim_max) + '\n';
  sigset_t mask;
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  text += "blocked " + std::to_string(sigismember(&mask, SIGUSR1)) + '\n';
  struct sigaction action {};
  sigaction(SIGPIPE, nullptr, &action);
  text += "sigpipe " + std::string(action.sa_handler == SIG_DFL ? "default" : "changed") + '\n';
  say(text);
  return 0;
}

// Starts a child of its own, names it, and dies without a word to it.
int orphan_a_child(const char* self) {
  ChildOptions options;
  options.command = {self, "ignore"};
  ChildProcess child(options);
  Frame frame;
  child.receive(frame, std::chrono::seconds(10));
  say(std::to_string(child.pid()));
  kill(getpid(), SIGKILL);
  return 0;
}

int run(const std::string& mode, const char* self, int number) {
  const std::map<std::string, std::function<int()>> kModes = {
      {"echo", echo},
      {"ignore", ignore_everything},
      {"stop", stop_itself},
      {"exit", [&] { return number; }},
      {"die", [&] { return die_by(number); }},
      {"half", half_frame},
      {"garbage", [] { return send_raw("HTTP/1.1 200 OK\r\n\r\n"), 0; }},
      {"huge", huge_length},
      {"heartbeats", heartbeats},
      {"dribble", dribble},
      {"flood", flood_stderr},
      {"talk", talk_first},
      {"grandchild", leave_a_grandchild},
      {"memory", bomb_memory},
      {"cpu", burn_cpu},
      {"close", [&] { return close_the_socket(number); }},
      {"silent", [] { return sleep_for_good(), 0; }},
      {"environment", dump_environment},
      {"inspect", inspect},
      {"orphan", [&] { return orphan_a_child(self); }},
  };
  return kModes.at(mode)();
}

}  // namespace
}  // namespace vitune

int main(int argc, char** argv) {
  if (argc < 2) return 96;
  return vitune::run(argv[1], argv[0], argc > 2 ? atoi(argv[2]) : 0);
}
