# tests/mutants/named.py -- The lines that the promises stand on, each changed once, and who should notice.
# SPDX-License-Identifier: Apache-2.0
from mutant import Check, Mutant


def _db(filter: str) -> Check:
    return Check("vitune_db_test", filter)


def _runtime(filter: str, emulated: bool = False) -> Check:
    return Check("vitune_runtime_test", filter, emulated)


def _tuner(filter: str, emulated: bool = False) -> Check:
    return Check("vitune_tuner_test", filter, emulated)


def _generator(filter: str) -> Check:
    return Check("vitune_generator_test", filter)


_LOADER = "runtime/load/loader.cpp"
_CALLS = (_runtime("CApiOutcomeTest.*:CApiTrustTest.*:CApiRefreshTest.*"),)

NAMED = (
    # --- guards
    Mutant("a database may be anybody's", "core/file_trust.cpp",
           "return owner == 0 || owner == ::geteuid() ||", "return owner != 0 || owner == ::geteuid() ||",
           (_db("Trusting.*:Opening.*"),), safety=True),
    # --- digests and seals
    Mutant("a row that does not match its digest is read", "db/table.cpp",
           "if (digest != nullptr && *digest == to_blob(row_digest(spec_.name, with_digest))) {", "if (digest != nullptr) {",
           (_db("Damage.*"),), safety=True),
    Mutant("a block list without its seal is whole", "db/block_seal.cpp",
           "seals.find(seals.key_of(now)) == now &&", "(seals.find(seals.key_of(now)) == now || true) &&",
           (_db("BlockList.*"),), safety=True),
    Mutant("a pack of as many rows as were sealed is whole", "db/store_pack.cpp",
           "std::pair(sealed->content, sealed->rows) == content(DigestOf::kAll)",
           "sealed->rows == content(DigestOf::kAll).second", (_db("PackTest.*"),), safety=True),
    # --- dispatch
    Mutant("winners are found where only defaults may serve", "db/layered_store.cpp",
           "std::vector<Found> found;\n  if (defaults_only_) return found;", "std::vector<Found> found;",
           (_db("BlockList.*:LayeredStoreTest.*:SiteLayersTest.*"), _runtime("CApiTrustTest.*")), safety=True),
    Mutant("an unverified winner is exact", "runtime/dispatch/dispatcher.cpp",
           "return row.winner.verified && is_usable(", "return is_usable(",
           (_runtime("DispatcherTest.*"), *_CALLS), safety=True),
    Mutant("an unverified winner serves its neighbours", "runtime/dispatch/winner_index.cpp",
           "|| !winner.verified || ", "|| ", (_runtime("DispatcherTest.*:NearestTest.*"), *_CALLS), safety=True),
    # --- the loader
    Mutant("a blocked kernel is compiled", _LOADER,
           'if (is_blocked(choice, keys)) return nothing(choice.config.text() + " is on the block list");', "",
           (_runtime("LibraryBlockedGpuTest.*", emulated=True),), safety=True),
    Mutant("a blocked kernel that is stored runs", _LOADER,
           "if (is_blocked(choice, keys)) return formatted(\"the stored kernel {} is on the block list\", name);",
           "if (keys.empty()) return formatted(\"the stored kernel {} is on the block list\", name);",
           _CALLS, safety=True),
    Mutant("an image for another architecture is loaded", _LOADER,
           "if (binary.arch != request.arch) {", "if (binary.arch.empty()) {", _CALLS, safety=True),
    Mutant("a winner's kernel may have been made from other sources", _LOADER,
           "if (key == verified) return", "if (key == verified || true) return", _CALLS, safety=True),
    Mutant("a winner runs as any image of its key", _LOADER,
           "if (choice.outcome == LookupOutcome::kExact) image = choice.row->winner.image_digest;",
           "if (choice.outcome == LookupOutcome::kExact) image.reset();", _CALLS, safety=True),
    # --- the workspace
    Mutant("a workspace may lack a byte", "runtime/context/pointer_check.cpp",
           "call.workspace_bytes < bytes ||", "call.workspace_bytes + 1 < bytes ||",
           (_runtime("*CApiWorkspaceTest.*"),), safety=True),
    Mutant("a workspace may lie on a tensor", "runtime/context/pointer_check.cpp",
           "if (!tensor) [[likely]]", "if (!tensor || true) [[likely]]", (_runtime("*CApiWorkspaceTest.*"),), safety=True),
    # --- the judge
    Mutant("writes beside the output are right", "tuner/judge/verify.cpp",
           "if (record.output_damage != 0) {", "if (false) {", (_tuner("Judge.*"),), safety=True),
    Mutant("what a kernel leaves unwritten is right", "templates/reference/compare.cuh",
           "if (got.poison) {", "if (false) {", (_tuner("GpuBenchWorker.EverySeededBug*", emulated=True),), safety=True),
    Mutant("a wrong kernel is not blocked", "tuner/loop/trial_book.cpp",
           "if (origin_ == Origin::kMeasured && blocks(trial.status)) block(trial);",
           "if (origin_ != Origin::kMeasured && blocks(trial.status)) block(trial);",
           (_tuner("Tune.*:Live.*"),), safety=True),
    # --- rules
    Mutant("rows of an output may overlap", "generator/problem_checks.cpp",
           "if (!may_overlap && rows > 1 && stride < columns) {", "if (!may_overlap && rows > 1 && stride < 1) {",
           (_generator("Norm*"),), safety=True),
    Mutant("configs may need twice the shared memory", "generator/attention/rules.cpp",
           "if (s.shared_bytes() <= device.shared_per_block) return", "if (s.shared_bytes() <= 2 * device.shared_per_block) return",
           (_generator("Attention*Test.*-AttentionKernel*"),)),
    # --- templates
    Mutant("a norm leaves eps out", "templates/norm/rows.cuh",
           "rsqrtf(squares * (1.f / C::kColumns) + eps)", "rsqrtf(squares * (1.f / C::kColumns) + 0 * eps)",
           (_tuner("NormGpuTest.*", emulated=True),), safety=True),
)
