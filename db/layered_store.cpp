// db/layered_store.cpp -- The user's database above those of the site and the shipped one.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "db/sqlite.h"
#include "db/store.h"
#include "db/store_state.h"

namespace vitune {
namespace {

// A lower layer may only help: damage in it is a miss, not a failure.
template <typename Result, typename Read>
Result or_nothing(Read&& read) {
  try {
    return read();
  } catch (const DatabaseError& error) {
    if (error.fault() == DatabaseFault::kLocked || error.fault() == DatabaseFault::kNoLocks) throw;
    return Result{};
  }
}

bool is_measured(const Winner& winner) {
  return winner.verified && winner.origin == Origin::kMeasured;
}

// Hearsay does not hide what a lower layer has measured.
void move_replayed_down(std::vector<LayeredStore::Found>& found) {
  for (auto at = found.rbegin(); at != found.rend(); ++at) {
    if (at->winner.origin != Origin::kReplayed) continue;
    const auto below = std::find_if(found.rbegin(), at,
                                    [](const auto& other) { return is_measured(other.winner); });
    if (below != at) std::rotate(at.base() - 1, at.base(), below.base());
  }
}

}  // namespace

std::string layer_name(Layer layer) {
  if (layer == Layer::kUser) return "user";
  return layer == Layer::kShipped ? "shipped" : "site";
}

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
                           bool list_is_lost, std::vector<std::unique_ptr<Store>> sites)
    : user_(std::move(user)), user_was_given_(user_ != nullptr), defaults_only_(list_is_lost) {
  if (user_) note_damaged_list(*user_);
  auto layer = static_cast<std::int32_t>(Layer::kSite);
  for (std::unique_ptr<Store>& site : sites) {
    if (site) {
      note_damaged_list(*site);
      lower_.push_back({std::move(site), static_cast<Layer>(layer)});
    }
    ++layer;
  }
  if (!shipped) return;
  if (or_nothing<bool>([&] { return shipped->block_list_is_whole(); })) {
    lower_.push_back({std::move(shipped), Layer::kShipped});
  } else {
    shipped_left_out_ = true;
  }
}

void LayeredStore::note_damaged_list(Store& store) {
  if (store.block_list_is_whole()) return;
  defaults_only_ = true;
  damaged_list_ = store.file();
}

Store& LayeredStore::user() {
  if (!user_) user_ = Store::in_memory();
  return *user_;
}

Store* LayeredStore::shipped() {
  const bool is_there = !lower_.empty() && lower_.back().layer == Layer::kShipped;
  return is_there ? lower_.back().store.get() : nullptr;
}

std::optional<Winner> LayeredStore::find_winner(const DeviceInfo& device, const ProblemKey& problem,
                                                Objective objective) {
  std::optional<Winner> winner;
  if (defaults_only_) return winner;
  if (user_) winner = user_->find_winner(device, problem, objective);
  for (auto at = lower_.begin(); !winner && at != lower_.end(); ++at) {
    winner = or_nothing<std::optional<Winner>>(
        [&] { return at->store->find_winner(device, problem, objective); });
  }
  return winner;
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
  for (const Lower& lower : lower_) {
    auto winner = or_nothing<std::optional<Winner>>(
        [&] { return lower.store->find_winner(device, problem, objective); });
    if (winner) found.push_back({std::move(*winner), lower.layer});
  }
  move_replayed_down(found);
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
  for (const Lower& lower : lower_) {
    or_nothing<bool>([&] {
      lower.store->visit_winners(device, of_layer(lower.layer));
      return true;
    });
  }
}

std::vector<Trial> LayeredStore::trials(const DeviceInfo& device, const ProblemKey& problem) {
  std::vector<Trial> all;
  if (user_) all = user_->trials(device, problem);
  for (const Lower& lower : lower_) {
    auto more =
        or_nothing<std::vector<Trial>>([&] { return lower.store->trials(device, problem); });
    all.insert(all.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
  }
  return all;
}

std::optional<Binary> LayeredStore::find_binary(const Digest& kernel_key,
                                                const std::optional<Digest>& image) {
  std::optional<Binary> binary;
  if (user_) binary = user_->find_binary(kernel_key, image);
  for (auto at = lower_.begin(); !binary && at != lower_.end(); ++at) {
    binary = or_nothing<std::optional<Binary>>(
        [&] { return at->store->find_binary(kernel_key, image); });
  }
  return binary;
}

bool LayeredStore::has_binary(const Digest& kernel_key) {
  return (user_ && user_->has_binary(kernel_key)) ||
         std::ranges::any_of(lower_, [&](const Lower& lower) {
           return or_nothing<bool>([&] { return lower.store->has_binary(kernel_key); });
         });
}

std::vector<Store*> LayeredStore::all_layers() {
  std::vector<Store*> layers;
  if (user_) layers.push_back(user_.get());
  for (const Lower& lower : lower_) layers.push_back(lower.store.get());
  return layers;
}

// A block list that cannot be read is an error in any layer: it must not let a kernel run.
std::optional<BlockEntry> LayeredStore::deciding_block(const Digest& kernel_key,
                                                       const DeviceInfo& device) {
  std::optional<BlockEntry> lift;
  for (Store* layer : all_layers()) {
    auto entry = layer->find_block(kernel_key, device);
    if (!entry) continue;
    if (!entry->lifts()) {
      if (!lift || entry->created >= lift->created) return entry;
    } else if (!defaults_only_ && (!lift || entry->created > lift->created)) {
      lift = std::move(entry);
    }
  }
  return lift;
}

bool LayeredStore::is_blocked(const Digest& kernel_key, const DeviceInfo& device) {
  const auto entry = deciding_block(kernel_key, device);
  return entry && !entry->lifts();
}

bool LayeredStore::did_not_end(const DeviceInfo& device, const ProblemKey& problem,
                               const Config& config, const Digest& kernel_key) {
  return user_ && user_->did_not_end(device, problem, config, kernel_key);
}

std::vector<std::string> LayeredStore::compiler_versions(
    const std::function<void(const Error&)>& unreadable) {
  std::set<std::string> all;
  const auto add = [&](Store& store) {
    try {
      for (std::string& version : store.compiler_versions()) all.insert(std::move(version));
    } catch (const Error& error) {
      unreadable(error);
    }
  };
  if (user_was_given_) add(*user_);
  for (const Lower& lower : lower_) add(*lower.store);
  return {all.begin(), all.end()};
}

std::vector<BlockEntry> LayeredStore::blocks() {
  std::vector<BlockEntry> all;
  std::map<std::tuple<Digest, std::string, int>, std::int64_t> lifted;
  for (Store* layer : all_layers()) {
    for (BlockEntry& entry : layer->block_rows()) {
      const std::tuple key(entry.kernel_key, entry.device_key, entry.driver_version);
      const auto lift = lifted.find(key);
      if (!entry.lifts()) {
        if (lift == lifted.end() || entry.created >= lift->second) all.push_back(std::move(entry));
      } else if (!defaults_only_) {
        std::int64_t& until = lifted.try_emplace(key, entry.created).first->second;
        until = std::max(until, entry.created);
      }
    }
  }
  return all;
}

std::vector<LayeredStore::Stored> LayeredStore::all_winners() {
  std::vector<Stored> all;
  std::map<std::tuple<std::string, ProblemKey, Objective>, std::size_t> firsts;
  const auto is_replayed = [&](std::size_t at) {
    return all[at].entry.winner.origin == Origin::kReplayed;
  };
  const auto add = [&](std::vector<WinnerEntry> more, Layer layer) {
    for (WinnerEntry& entry : more) {
      const auto [first, is_new] = firsts.try_emplace(
          {entry.device.key(), entry.problem, entry.winner.objective}, all.size());
      const bool comes_first = is_new || (is_measured(entry.winner) && is_replayed(first->second));
      if (comes_first && !is_new) all[std::exchange(first->second, all.size())].comes_first = false;
      all.push_back({std::move(entry), layer, comes_first});
    }
  };
  if (user_) add(user_->winners(), Layer::kUser);
  for (const Lower& lower : lower_) {
    add(or_nothing<std::vector<WinnerEntry>>([&] { return lower.store->winners(); }), lower.layer);
  }
  return all;
}

std::vector<WinnerEntry> LayeredStore::winners() {
  std::vector<WinnerEntry> first;
  for (Stored& stored : all_winners()) {
    if (stored.comes_first) first.push_back(std::move(stored.entry));
  }
  return first;
}

}  // namespace vitune
