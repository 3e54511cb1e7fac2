// tests/cli/command_fixture.h -- Runs the real command in a home of its own and looks at what it
// says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace vitune::testing {

namespace fs = std::filesystem;

struct CommandResult {
  int status = -1;  // exit status, or 128 + the signal that ended it
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

struct CommandOptions {
  std::map<std::string, std::string> environment = {};  // added to the fixture's
  std::vector<std::string> without = {};                // variables of the fixture to leave out
  std::string input = {};                               // at most 64 KiB
  std::string out_path = {};                            // stdout goes to this file instead
  std::string err_path = {};                            // and stderr to this one
  bool closed_stdout = false;
  bool closed_stderr = false;
  rlim_t file_size_limit = RLIM_INFINITY;
  rlim_t memory_limit = RLIM_INFINITY;  // of its address space
  bool unprivileged = false;            // as another user, if this one is root
  std::string program = VITUNE_COMMAND;
};

// For a whole command, which may compile on a loaded machine; less than ctest gives a test.
inline constexpr std::chrono::minutes kCommandPatience{8};

// A started command. Its output is collected by finish().
class RunningCommand {
 public:
  RunningCommand(const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment,
                 const CommandOptions& options) {
    std::array<int, 2> in{}, out{}, err{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0 ||
        pipe2(err.data(), O_CLOEXEC) != 0) {
      throw std::runtime_error("no pipes for the command");
    }
    std::vector<std::string> texts = {options.program}, variables;
    texts.insert(texts.end(), arguments.begin(), arguments.end());
    for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
    std::vector<char*> argv, envp;
    for (std::string& text : texts) argv.push_back(text.data());
    for (std::string& text : variables) envp.push_back(text.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("no process for the command");
    if (pid_ == 0) run_child(in[0], out[1], err[1], argv, envp, options);
    for (const int fd : {in[0], out[1], err[1]}) close(fd);
    if (write(in[1], options.input.data(), options.input.size()) < 0) perror("input");
    close(in[1]);
    out_fd_ = out[0];
    err_fd_ = err[0];
  }
  ~RunningCommand() {
    if (pid_ > 0 && !ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_fd_);
    close(err_fd_);
  }
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;

  void signal(int number) const { kill(pid_, number); }
  bool has_ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid_;
  }

  // Waits for the end; after `limit` the command is killed and the status is 128 + SIGKILL.
  CommandResult finish(std::chrono::milliseconds limit = kCommandPatience) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    CommandResult result;
    std::array<pollfd, 2> waits{{{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}}};
    const std::array<std::string*, 2> texts{&result.out, &result.err};
    while (waits[0].fd >= 0 || waits[1].fd >= 0) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) {
        kill(pid_, SIGKILL);
        break;
      }
      poll(waits.data(), waits.size(), static_cast<int>(left.count()));
      for (std::size_t i = 0; i < 2; ++i) {
        if (waits[i].revents == 0) continue;
        std::array<char, 1 << 16> block;
        const ssize_t count = read(waits[i].fd, block.data(), block.size());
        if (count <= 0) {
          waits[i].fd = -1;
        } else {
          texts[i]->append(block.data(), static_cast<std::size_t>(count));
        }
      }
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    ended_ = true;
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
  }

 private:
  [[noreturn]] static void run_child(int in, int out, int err, std::vector<char*>& argv,
                                     std::vector<char*>& envp, const CommandOptions& options) {
    if (!options.out_path.empty()) out = open(options.out_path.c_str(), O_WRONLY);
    if (!options.err_path.empty()) err = open(options.err_path.c_str(), O_WRONLY);
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    if (options.closed_stdout) close(1);
    if (options.closed_stderr) close(2);
    if (options.file_size_limit != RLIM_INFINITY) {
      const rlimit limit{options.file_size_limit, options.file_size_limit};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (options.memory_limit != RLIM_INFINITY) {
      const rlimit limit{options.memory_limit, options.memory_limit};
      setrlimit(RLIMIT_AS, &limit);
    }
    constexpr uid_t kNobody = 65534;
    if (options.unprivileged && geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) {
      _exit(126);
    }
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }

  pid_t pid_ = -1;
  int out_fd_ = -1, err_fd_ = -1;
  bool ended_ = false;
};

// Each test has a directory of its own, with a home in it, that goes with the test.
class CommandTest : public ::testing::Test {
 protected:
  CommandTest() {
    std::string pattern = (fs::temp_directory_path() / "vitune-cli-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    directory_ = pattern;
    fs::create_directory(home());
  }
  ~CommandTest() override {
    std::error_code ignored;
    fs::permissions(home(), fs::perms::owner_all, ignored);
    fs::remove_all(directory_, ignored);
  }

  const fs::path& directory() const { return directory_; }
  fs::path home() const { return directory_ / "home"; }
  // The path of a file that nobody makes.
  std::string absent(const std::string& name) const {
    return (directory_ / "absent" / name).string();
  }
  fs::path database() const { return home() / ".cache" / "vitune" / "vitune.db"; }

  std::unique_ptr<RunningCommand> start(const std::vector<std::string>& arguments,
                                        const CommandOptions& options = {}) const {
    std::map<std::string, std::string> environment = {{"HOME", home().string()},
                                                      {"PATH", "/usr/local/bin:/usr/bin:/bin"},
                                                      {"ASAN_OPTIONS", "detect_leaks=0"}};
    for (const char* name : {"CUDA_HOME", "PATH", "LD_LIBRARY_PATH", "VITUNE_EMULATED_KERNELS"}) {
      if (const char* value = getenv(name)) environment[name] = value;
    }
    for (const auto& [name, value] : options.environment) environment[name] = value;
    for (const std::string& name : options.without) environment.erase(name);
    return std::make_unique<RunningCommand>(arguments, environment, options);
  }

  CommandResult run(const std::vector<std::string>& arguments,
                    const CommandOptions& options = {}) const {
    return start(arguments, options)->finish();
  }

  bool has_compiler() const {
    const CommandResult doctor = run({"doctor", "--csv", "-q"});
    return doctor.out.find("\nNVRTC,ok") != std::string::npos;
  }
  bool has_gpu() const { return run({"devices", "-q"}).status == 0; }

  fs::path write_file(const std::string& name, const std::string& content) const {
    const fs::path path = directory_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  static std::string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
  }

 private:
  fs::path directory_;
};

}  // namespace vitune::testing
