// cli/verbs/stored_kernels.cpp -- Derives the key of every stored config again, by both rules.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/stored_kernels.h"

#include <algorithm>

#include "cli/verbs/made_today.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/compile_options.h"
#include "generator/operator.h"

namespace vitune {
namespace {

// The kernel's facts in a trial or a winner.
struct Named {
  const DeviceInfo& device;
  const ProblemKey& problem;
  const Config& config;
  const Digest& key;
  std::string compiler;                           // empty: a trial does not say
  std::optional<std::int64_t> shared_bytes = {};  // of a trial
};

class Collector {
 public:
  explicit Collector(Store& store) : store_(store) {
    for (const std::string& version : store.compiler_versions()) compilers_.insert(version);
    for (const WinnerEntry& entry : store.winners()) {
      compilers_.insert(entry.winner.compiler_version);
    }
  }

  StoredKernels run() {
    for (const WinnerEntry& entry : store_.winners()) {
      const Winner& winner = entry.winner;
      note(
          {entry.device, entry.problem, winner.config, winner.kernel_key, winner.compiler_version});
    }
    for (const TrialEntry& entry : store_.all_trials()) {
      note({entry.device,
            entry.problem,
            entry.trial.config,
            entry.trial.kernel_key,
            {},
            entry.trial.compile.shared_bytes});
    }
    for (const BlockEntry& entry : store_.block_rows()) {
      unknown(entry.kernel_key, "no config of it is stored");
    }
    // Another row of the same kernel may have told more.
    for (const Digest& key : found_.current) found_.same_text.erase(key);
    std::erase_if(found_.older, [&](const auto& kernel) {
      return found_.current.contains(kernel.first) || found_.same_text.contains(kernel.first);
    });
    std::erase_if(found_.unknown, [&](const auto& kernel) { return is_known(kernel.first); });
    for (const Digest& key : divided_) {
      found_.same_text.erase(key);
      found_.older.erase(key);
      unknown(key, "its problems have kernels of their own now");
    }
    return std::move(found_);
  }

 private:
  bool is_known(const Digest& key) const {
    return found_.current.contains(key) || found_.same_text.contains(key) ||
           found_.older.contains(key);
  }

  void unknown(const Digest& key, std::string why) {
    found_.unknown.try_emplace(key, std::move(why));
  }

  void note(const Named& named) {
    try {
      const ProblemPtr problem = parse_problem(named.problem.text);
      // A source is made of sound configs only; this one may be anything.
      const ParameterSpace& space = space_of(*problem, named.device);
      const Config config = space.completed(named.config);
      if (const auto why = space.explain(config)) return unknown(named.key, *why);
      place(named, problem, config);
    } catch (const Error& error) {
      unknown(named.key, error.what());
    }
  }

  const ParameterSpace& space_of(const Problem& problem, const DeviceInfo& device) {
    const auto key = std::pair(device.key(), problem.text());
    const auto at = spaces_.find(key);
    if (at != spaces_.end()) return at->second;
    return spaces_.emplace(key, problem.op().space(problem, device)).first->second;
  }

  void place(const Named& named, const ProblemPtr& problem, const Config& config) {
    CompileRequest request = problem->op().request(*problem, config, named.device.arch());
    for (const std::string& compiler : compilers_of(named, request)) {
      const Digest now = kernel_key(request, compiler);
      const bool is_current = now == named.key;
      if (!is_current && text_kernel_key(request, compiler) != named.key) continue;
      note_key(named.key, now);
      if (is_current) {
        found_.current.insert(now);
      } else {
        found_.same_text.emplace(named.key, now);
      }
      return;
    }
    const auto binary = store_.find_binary(named.key);
    if (!binary || binary->image.empty()) {
      return unknown(named.key, "its kernel is not stored, and was made from other sources");
    }
    const Digest now = kernel_key(request, binary->compiler_version);
    note_key(named.key, now);
    const auto [at, fresh] = found_.older.try_emplace(
        named.key,
        OlderKernel{problem, config, binary->compiler_version, std::move(request), now, {}});
    // Problems that share a kernel may launch it with different amounts.
    if (named.shared_bytes && at->second.problem->text() == problem->text()) {
      at->second.shared_bytes = named.shared_bytes;
    }
  }

  std::vector<std::string> compilers_of(const Named& named, const CompileRequest& request) const {
    if (!request.library.empty()) return {request.library};
    if (!named.compiler.empty()) return {named.compiler};
    return {compilers_.begin(), compilers_.end()};
  }

  // Where another row has told another key, what was one kernel is two now: its rows would have to
  // be told apart.
  void note_key(const Digest& key, const Digest& now) {
    if (now_.emplace(key, now).first->second != now) divided_.insert(key);
  }

  Store& store_;
  std::set<std::string> compilers_;
  std::map<std::pair<std::string, std::string>, ParameterSpace> spaces_;
  StoredKernels found_;
  std::map<Digest, Digest> now_;  // of each stored key, however it is known
  std::set<Digest> divided_;
};

}  // namespace

StoredKernels stored_kernels(Store& store) { return Collector(store).run(); }

std::vector<Binary> images_elsewhere(LayeredStore& layers) {
  std::vector<Binary> images;
  std::set<std::pair<Digest, std::optional<Digest>>> asked;
  for (const WinnerEntry& entry : layers.user().winners()) {
    const auto& [key, image] = std::pair(entry.winner.kernel_key, entry.winner.image_digest);
    if (!asked.emplace(key, image).second || layers.user().find_binary(key, image)) continue;
    if (auto binary = layers.find_binary(key, image)) images.push_back(std::move(*binary));
  }
  return images;
}

std::vector<WinnerEntry> stale_winners(Store& store, const std::map<Digest, Digest>& keys) {
  std::vector<WinnerEntry> winners = store.winners();
  const MakesKernel makes_kernel = makes_kernel_today();
  std::erase_if(winners, [&](const WinnerEntry& entry) {
    Winner winner = entry.winner;
    const auto now = keys.find(winner.kernel_key);
    if (now != keys.end()) winner.kernel_key = now->second;
    return makes_kernel(entry.device, entry.problem, winner);
  });
  return winners;
}

}  // namespace vitune
