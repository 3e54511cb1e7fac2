// cli/verbs/same_code.cpp -- Compiles stored kernels again and compares what runs.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/same_code.h"

#include <optional>
#include <utility>

#include "cli/arguments/stores.h"
#include "cli/output/text.h"
#include "cli/verbs/compile_probes.h"
#include "core/error.h"
#include "core/format.h"
#include "db/rekey.h"
#include "generator/compile_log.h"
#include "generator/cubin_code.h"
#include "generator/operator.h"

namespace vitune {
namespace {

// A kernel as the compiler makes it today.
struct MadeAgain {
  std::optional<std::string> failure;
  CompileFacts facts;
  std::optional<Digest> code;
};

MadeAgain made_of(const CompileResult& result) {
  if (result.status != CompileStatus::kOk) {
    return {formatted("it does not compile: {}", decisive_line(result.log)), {}, {}};
  }
  return {std::nullopt, result.facts, code_digest(result.cubin)};
}

// The first thing by which the two differ; nothing: a launch cannot tell them apart.
std::optional<std::string> difference(const OlderKernel& kernel, const Binary& stored,
                                      const MadeAgain& made) {
  if (made.failure) return made.failure;
  const auto changed = [](const char* what, auto before, auto now) {
    return formatted("it has {} {}, the stored one {}", now, what, before);
  };
  const CompileFacts& before = stored.compile;
  if (stored.compiler_version != kernel.compiler) return "another compiler made an image of it";
  if (stored.arch != kernel.request.arch) return "it is of another architecture";
  if (stored.entry != kernel.request.entry) return "its entry has another name";
  if (before.registers != made.facts.registers) {
    return changed("registers", before.registers, made.facts.registers);
  }
  if (before.spill_bytes != made.facts.spill_bytes) {
    return changed("bytes of spills", before.spill_bytes, made.facts.spill_bytes);
  }
  // Shared memory that the code itself reserves counts; a launch may ask for more, which a trial
  // alone has told.
  const std::int64_t launched =
      kernel.shared_bytes ? dynamic_shared_bytes(*kernel.problem, kernel.config) : 0;
  const std::int64_t shared = made.facts.shared_bytes + launched;
  const std::int64_t shared_before = kernel.shared_bytes.value_or(before.shared_bytes);
  if (shared_before != shared) return changed("bytes of shared memory", shared_before, shared);
  const auto code = code_digest(stored.image);
  if (!code) return "its stored image is damaged";
  if (code != made.code) return "its machine code differs";
  return std::nullopt;
}

// Each kernel that this compiler may have made, compiled; the others are put down as different.
std::map<Digest, MadeAgain> compile_all(Session& session,
                                        const std::map<Digest, OlderKernel>& kernels,
                                        CodeComparison& comparison) {
  CompilePool pool(compile_pool_options(session));
  const std::string compiler = pool.compiler_version();
  std::vector<Digest> jobs;
  for (const auto& [key, kernel] : kernels) {
    if (kernel.compiler == compiler) {
      pool.submit(jobs.size(), kernel.request);
      jobs.push_back(key);
    } else {
      comparison.differs[key] =
          formatted("{} made it, and only that can tell; this is {}", kernel.compiler, compiler);
    }
  }
  std::map<Digest, MadeAgain> made;
  while (made.size() < jobs.size()) {
    if (session.stop) throw Error(ErrorCode::kInterrupted, "interrupted; nothing was changed");
    const auto finished = pool.wait(std::chrono::milliseconds(200));
    if (!finished) continue;
    made[jobs.at(finished->first)] = made_of(finished->second);
    session.console.progress(formatted("compiled {}/{} kernels", made.size(), jobs.size()));
  }
  session.console.end_progress();
  return made;
}

}  // namespace

CodeComparison compare_code(Session& session, const std::map<Digest, OlderKernel>& kernels,
                            const std::vector<Binary>& elsewhere) {
  CodeComparison comparison;
  if (kernels.empty()) return comparison;
  const std::map<Digest, MadeAgain> made = compile_all(session, kernels, comparison);
  std::set<Digest> keys;
  for (const auto& [key, kernel] : made) keys.insert(key);
  const auto compare = [&](const Binary& stored) {
    const Digest& key = stored.kernel_key;
    if (!keys.contains(key)) return;
    comparison.images.try_emplace(key);
    if (auto why = difference(kernels.at(key), stored, made.at(key))) {
      comparison.differs.try_emplace(key, std::move(*why));
    }
  };
  const auto compare_own = [&](const Binary& stored, const Digest& image) {
    compare(stored);
    comparison.images[stored.kernel_key].insert(image);
  };
  visit_images(*database_path(session), keys, compare_own, session.console.sink(), std::nullopt,
               &session.stop, trusted_owners(session));
  for (const Binary& binary : elsewhere) compare(binary);
  for (const Digest& key : keys) {
    if (!comparison.images.contains(key)) {
      comparison.differs.try_emplace(key, "its stored image is damaged");
    }
    if (!comparison.differs.contains(key)) comparison.same[key] = kernels.at(key).now;
  }
  return comparison;
}

}  // namespace vitune
