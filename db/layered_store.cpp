// db/layered_store.cpp -- The user's database above the shipped one.
#include <set>
#include <tuple>

#include "db/sqlite.h"
#include "db/store.h"

namespace vitune {
namespace {

// The shipped layer may only help: damage in it is a miss, not a failure.
template <typename Result, typename Read>
Result or_nothing(Read&& read) {
  try {
    return read();
  } catch (const DatabaseError& error) {
    if (error.fault() == DatabaseFault::kLocked) throw;
    return Result{};
  }
}

}  // namespace

LayeredStore::LayeredStore(std::unique_ptr<Store> user, std::unique_ptr<Store> shipped)
    : user_(std::move(user)), shipped_(std::move(shipped)) {}

std::optional<Winner> LayeredStore::find_winner(const DeviceInfo& device, const ProblemKey& problem,
                                                Objective objective) {
  auto winner = user_->find_winner(device, problem, objective);
  if (winner || !shipped_) return winner;
  return or_nothing<std::optional<Winner>>(
      [&] { return shipped_->find_winner(device, problem, objective); });
}

std::optional<Binary> LayeredStore::find_binary(const Digest& kernel_key) {
  auto binary = user_->find_binary(kernel_key);
  if (binary || !shipped_) return binary;
  return or_nothing<std::optional<Binary>>([&] { return shipped_->find_binary(kernel_key); });
}

std::vector<WinnerEntry> LayeredStore::winners() {
  std::vector<WinnerEntry> all = user_->winners();
  if (!shipped_) return all;
  const auto identity = [](const WinnerEntry& entry) {
    return std::tuple(entry.device.key(), entry.problem, entry.winner.objective);
  };
  std::set<std::tuple<std::string, ProblemKey, Objective>> taken;
  for (const WinnerEntry& entry : all) taken.insert(identity(entry));
  auto shipped = or_nothing<std::vector<WinnerEntry>>([&] { return shipped_->winners(); });
  for (WinnerEntry& entry : shipped) {
    if (!taken.contains(identity(entry))) all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace vitune
