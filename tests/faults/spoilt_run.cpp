// tests/faults/spoilt_run.cpp -- The state that is shared with the process is a mapped file.
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/spoilt_run.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace vitune::faults {
namespace {

State* shared_state(const std::filesystem::path& file) {
  test::write_bytes(file, std::string(sizeof(State), '\0'));
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  void* const shared = ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (shared == MAP_FAILED) throw std::runtime_error("no shared memory for the count of calls");
  return static_cast<State*>(shared);
}

std::vector<RecordedCall> parsed(const std::string& log) {
  std::vector<RecordedCall> calls;
  std::size_t at = 0;
  const auto take = [&](std::size_t size) {
    if (at + size > log.size()) throw std::runtime_error("the record of file calls is cut off");
    at += size;
    return log.substr(at - size, size);
  };
  while (at < log.size()) {
    RecordedCall call;
    std::memcpy(&call.logged, take(sizeof call.logged).data(), sizeof call.logged);
    call.path = take(call.logged.path);
    call.to = take(call.logged.to);
    call.data = take(call.logged.data);
    calls.push_back(std::move(call));
  }
  return calls;
}

std::string name_of(int kind) {
  switch (kind) {
    case kKillBefore:
      return "killed before";
    case kKillAfter:
      return "killed after";
    case kKillHalfway:
      return "killed halfway";
    case kShort:
      return "half done";
    default:
      return ::strerrorname_np(kind);
  }
}

}  // namespace

std::string text_of(const Fault& fault) {
  return "call " + std::to_string(fault.at) + " " + name_of(fault.kind) +
         (fault.for_ever ? " and all later ones" : "");
}

std::vector<Fault> possible_faults(const std::vector<RecordedCall>& calls,
                                   const std::vector<FaultKind>& kinds) {
  std::vector<Fault> faults;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (const FaultKind& kind : kinds) {
      if (can_befall(calls[i].logged.call, kind.kind, calls[i].logged.created))
        faults.push_back({static_cast<std::uint32_t>(i + 1), kind.kind, kind.for_ever});
    }
  }
  return faults;
}

SpoiltRun::SpoiltRun(const Operation& operation)
    : operation_(operation), state_(shared_state(scratch_ / "state")) {}

SpoiltRun::~SpoiltRun() { ::munmap(state_, sizeof(State)); }

Environment SpoiltRun::environment() const {
  Environment variables = {{"LD_PRELOAD", VITUNE_FILE_CALLS},
                           {"FAULTS_FOLDER", folder().string()},
                           {"FAULTS_STATE", (scratch_ / "state").string()}};
  if (operation_.is_on_plain_files()) variables["FAULTS_PLAIN"] = "1";
  return variables;
}

Ended SpoiltRun::run(const Fault& fault) {
  operation_.prepare(folder());
  *state_ = {};
  Environment variables = environment();
  variables["FAULTS_AT"] = std::to_string(fault.at);
  variables["FAULTS_KIND"] = std::to_string(fault.kind);
  if (fault.for_ever) variables["FAULTS_FOR_EVER"] = "1";
  if (fault.only) variables["FAULTS_ONLY"] = kCallNames[static_cast<int>(*fault.only)];
  return operation_.run(folder(), variables);
}

std::vector<RecordedCall> SpoiltRun::recorded() {
  const std::filesystem::path log = scratch_ / "log";
  std::filesystem::remove(log);
  *state_ = {};
  Environment variables = environment();
  variables["FAULTS_LOG"] = log.string();
  const Ended ended = operation_.run(folder(), variables);
  if (ended.status != 0)
    throw std::runtime_error(operation_.name() + " does not work recorded: " + ended.err);
  std::vector<RecordedCall> calls = parsed(test::read_bytes(log));
  if (calls.empty() || calls.size() != state_->calls)
    throw std::runtime_error(operation_.name() + ": its file calls were not recorded");
  return calls;
}

}  // namespace vitune::faults
