// db/layered_store.cpp -- The user's database above the shipped one.
// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <set>
#include <tuple>

#include "db/sqlite.h"
#include "db/store.h"
#include "db/store_state.h"

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

bool is_measured(const LayeredStore::Found& found) {
  return found.winner.verified && found.winner.origin == Origin::kMeasured;
}

}  // namespace

std::string layer_name(Layer layer) { return layer == Layer::kUser ? "user" : "shipped"; }

void Store::visit_winners(const DeviceInfo& device,
                          const std::function<void(const ProblemKey&, const Winner&)>& visit) {
  Transaction snapshot(*state_->connection, Transaction::Kind::kRead);
  const auto problems = state_->problem_map();
  state_->winners.scan({device_id(device)}, [&](const Row& row) {
    const auto problem = problems.find(std::get<Blob>(row[1]));
    if (problem == problems.end()) return;
    const auto winner = state_->decoded(state_->winners, row, winner_from_row);
    if (winner) visit(problem->second, *winner);
  });
  snapshot.commit();
}

LayeredStore::LayeredStore(std::unique_ptr<Store> user, std::unique_ptr<Store> shipped,
                           bool user_is_lost)
    : user_(std::move(user)),
      user_was_given_(user_ != nullptr),
      shipped_(std::move(shipped)),
      defaults_only_(user_is_lost || (user_ != nullptr && !user_->block_list_is_whole())) {
  if (!shipped_ || or_nothing<bool>([&] { return shipped_->block_list_is_whole(); })) return;
  shipped_.reset();
  shipped_left_out_ = true;
}

Store& LayeredStore::user() {
  if (!user_) user_ = Store::in_memory();
  return *user_;
}

std::optional<Winner> LayeredStore::find_winner(const DeviceInfo& device, const ProblemKey& problem,
                                                Objective objective) {
  std::optional<Winner> winner;
  if (defaults_only_) return winner;
  if (user_) winner = user_->find_winner(device, problem, objective);
  if (winner || !shipped_) return winner;
  return or_nothing<std::optional<Winner>>(
      [&] { return shipped_->find_winner(device, problem, objective); });
}

std::vector<LayeredStore::Found> LayeredStore::find_winners(const DeviceInfo& device,
                                                            const ProblemKey& problem,
                                                            Objective objective) {
  std::vector<Found> found;
  if (defaults_only_) return found;
  if (user_) {
    auto winner = user_->find_winner(device, problem, objective);
    if (winner) found.push_back({std::move(*winner), Layer::kUser});
  }
  if (!shipped_) return found;
  auto winner = or_nothing<std::optional<Winner>>(
      [&] { return shipped_->find_winner(device, problem, objective); });
  if (winner) found.push_back({std::move(*winner), Layer::kShipped});
  if (found.size() == 2 && found[0].winner.origin == Origin::kReplayed && is_measured(found[1])) {
    std::swap(found[0], found[1]);
  }
  return found;
}

void LayeredStore::visit_winners(
    const DeviceInfo& device,
    const std::function<void(const ProblemKey&, const Winner&, Layer)>& visit) {
  if (defaults_only_) return;
  const auto of_layer = [&](Layer layer) {
    return [&visit, layer](const ProblemKey& problem, const Winner& winner) {
      visit(problem, winner, layer);
    };
  };
  if (user_) user_->visit_winners(device, of_layer(Layer::kUser));
  if (!shipped_) return;
  or_nothing<bool>([&] {
    shipped_->visit_winners(device, of_layer(Layer::kShipped));
    return true;
  });
}

std::vector<Trial> LayeredStore::trials(const DeviceInfo& device, const ProblemKey& problem) {
  std::vector<Trial> all;
  if (user_) all = user_->trials(device, problem);
  if (!shipped_) return all;
  auto shipped = or_nothing<std::vector<Trial>>([&] { return shipped_->trials(device, problem); });
  all.insert(all.end(), std::make_move_iterator(shipped.begin()),
             std::make_move_iterator(shipped.end()));
  return all;
}

std::optional<Binary> LayeredStore::find_binary(const Digest& kernel_key,
                                                const std::optional<Digest>& image) {
  std::optional<Binary> binary;
  if (user_) binary = user_->find_binary(kernel_key, image);
  if (binary || !shipped_) return binary;
  return or_nothing<std::optional<Binary>>(
      [&] { return shipped_->find_binary(kernel_key, image); });
}

bool LayeredStore::has_binary(const Digest& kernel_key) {
  return (user_ && user_->has_binary(kernel_key)) ||
         (shipped_ && or_nothing<bool>([&] { return shipped_->has_binary(kernel_key); }));
}

// A block list that cannot be read is an error in either layer: it must not let a kernel run.
bool LayeredStore::is_blocked(const Digest& kernel_key, const DeviceInfo& device) {
  return (user_ && user_->is_blocked(kernel_key, device)) ||
         (shipped_ && shipped_->is_blocked(kernel_key, device));
}

std::vector<WinnerEntry> LayeredStore::winners() {
  std::vector<WinnerEntry> all;
  if (user_) all = user_->winners();
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
