// db/store.h -- The database as its users see it: devices, problems, trials, winners, binaries.
//
// One connection, one thread. Every write is one BEGIN IMMEDIATE transaction that has been synced
// to disk when the call returns. Every row carries a SHA-256 over its columns that is checked
// before the row is used; a row that fails it is treated as absent, counted and reported. Errors:
// Error(kDatabase) with the file, what was tried and what to do next.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "db/file_guard.h"
#include "db/records.h"

namespace vitune {

enum class Access { kReadOnly, kReadWrite };

// A problem as the database knows it.
struct ProblemKey {
  std::string operator_name;  // "attention"
  std::string text;           // canonical text
  auto operator<=>(const ProblemKey&) const = default;
};

struct WinnerEntry {
  DeviceInfo device;
  ProblemKey problem;
  Winner winner;
};

struct TrialEntry {
  DeviceInfo device;
  ProblemKey problem;
  Trial trial;
};

// Why a kernel must not be launched again, or that a person lifted that: one row per (kernel key,
// device key, driver version). Of a block and a lift the later counts.
struct BlockEntry {
  Digest kernel_key;
  std::string device_key;
  int driver_version = 0;
  TrialStatus status = TrialStatus::kWrong;  // kOk: it lifts the block
  std::string reason;                        // of a lift, that of the block
  std::int64_t created = 0;                  // seconds since 1970; set as it is stored

  bool lifts() const { return status == TrialStatus::kOk; }
};

// An attempt that was begun and not ended: its process or machine died meanwhile.
struct OpenAttempt {
  ProblemKey problem;
  Config config;
  int count = 0;  // how many processes began it and died
};

// How far the searches behind a winner went, all of them on its kernels together.
struct SearchRecord {
  Digest kernel_key;  // the winner's: with another one the record says nothing
  std::int64_t seconds = 0;
  bool ended = false;  // by itself, not by a budget
};

struct StoreStats {
  std::int64_t devices = 0, problems = 0, trials = 0, winners = 0, unverified_winners = 0,
               binaries = 0, blocks = 0, lifted_blocks = 0, requests = 0, binary_bytes = 0,
               file_bytes = 0;
  int schema_version = 0;
};

struct CheckReport {
  bool integrity_ok = false;
  std::int64_t rows = 0;
  std::int64_t bad_rows = 0;
  std::int64_t lifted_blocks = 0;
  std::vector<std::string> problems;  // one line each
};

struct MergeReport {
  std::int64_t trials_added = 0, winners_added = 0, winners_replaced = 0, binaries_added = 0,
               skipped = 0;
};

// True if the present templates make the kernel of a winner on its device. A fact of the three
// values alone, whatever else is stored.
using MakesKernel = std::function<bool(const DeviceInfo&, const ProblemKey&, const Winner&)>;

// Which devices are meant; empty: all.
using WantsDevice = std::function<bool(const DeviceInfo&)>;

// The order for a pack: its contents.
struct PackOrder {
  std::string
      label;  // who made it, when, of what: plain text (is_plain_text()), 1 to 59 characters
  WantsDevice wants_device;
  MakesKernel makes_kernel;
  bool with_replayed = false;  // winners from a recording too: their kernels have not run here
};

// Counts of the rows in a pack, and of the winners left out; those of other devices are not
// counted.
struct PackReport {
  std::int64_t devices = 0, winners = 0, binaries = 0, blocks = 0;
  std::int64_t unverified = 0;      // left out: not judged on their device
  std::int64_t stale = 0;           // left out: the present templates do not make their kernel
  std::int64_t without_kernel = 0;  // left out: the kernel that was judged is not stored
  std::int64_t replayed = 0;        // from a recording; left out unless the order has them
  Digest content;
};

// Counts of what pruning deletes.
struct PruneReport {
  std::int64_t trials = 0, kernels = 0;
};

// The seal in a pack.
struct PackSeal {
  std::string label;
  std::int64_t rows = 0;
  Digest content;  // content_digest() of all its rows
};

// The rows that a digest of contents covers.
enum class DigestOf { kAll, kResults };

class Store {
 public:
  // Opens the file at `path`; kReadWrite creates it (mode 0600, its directory 0700) and migrates an
  // older schema after a backup. Foreign, damaged or newer files, and packs that are to be written
  // to, are refused and left as they are.
  // It waits at most `patience` for a lock, each time it needs one (nothing: a writer 60 s, a
  // reader 250 ms). A file of an older schema is read as it would be after its migration. `trust`:
  // whose files are used beside this user's own. Once *stop is true, no
  // such wait lasts longer than half a second: it ends with Error(kInterrupted), and what was to be
  // stored is not. `stop` must outlive the store; null: nothing ends a wait early.
  static std::unique_ptr<Store> open(const std::filesystem::path& path, Access access,
                                     const LogSink& log_sink = {},
                                     std::optional<std::chrono::milliseconds> patience = {},
                                     const std::atomic<bool>* stop = nullptr,
                                     const Trust& trust = {});
  // An empty database in memory, for when no directory is usable.
  static std::unique_ptr<Store> in_memory();
  ~Store();

  // The file; empty for one in memory.
  std::filesystem::path file() const;
  // Those that something is stored of, in the order of their keys.
  std::vector<DeviceInfo> devices();

  // --- trials
  // Adds or replaces the trial of (device, problem, config) and ends its attempt, unless that is
  // one of another process that is alive, in one transaction. A replayed or imported trial never
  // replaces a measured one. Throws Error(kFailure) for figures or texts that the schema refuses (a
  // time that is not finite, say); an error figure that is not finite is kept as infinity.
  void put_trial(const DeviceInfo& device, const ProblemKey& problem, const Trial& trial);
  // The same for many trials in one transaction: all of them or none.
  void put_trials(const DeviceInfo& device, const ProblemKey& problem,
                  const std::vector<Trial>& trials);
  std::optional<Trial> find_trial(const DeviceInfo& device, const ProblemKey& problem,
                                  const Config& config);
  // In the order of their configs' texts.
  std::vector<Trial> trials(const DeviceInfo& device, const ProblemKey& problem);
  // Every trial of every device and problem.
  std::vector<TrialEntry> all_trials();
  // Marks that a candidate is about to run in `process`, by default this one; put_trial ends it.
  void begin_attempt(const DeviceInfo& device, const ProblemKey& problem, const Config& config,
                     std::optional<int> process = std::nullopt);
  // Ends an attempt that was stopped on purpose: it says nothing of the candidate.
  void withdraw_attempt(const DeviceInfo& device, const ProblemKey& problem, const Config& config);
  // Those of processes that are gone: what another tuner runs at this moment is not among them.
  std::vector<OpenAttempt> open_attempts(const DeviceInfo& device);

  // --- winners
  // One transaction: the winner with its evidence and, if given, its binary and how far the
  // searches behind it went. A replayed or imported winner never replaces a measured, verified one:
  // then nothing is stored and false returned; true: it is now the winner. Throws Error(kFailure)
  // if the binary is not the winner's.
  bool promote(const DeviceInfo& device, const ProblemKey& problem, const Winner& winner,
               const Binary* binary, const std::optional<SearchRecord>& search = std::nullopt);
  std::optional<Winner> find_winner(const DeviceInfo& device, const ProblemKey& problem,
                                    Objective objective);
  std::vector<WinnerEntry> winners();
  // Calls `visit` with each winner of one device by either objective, in no particular order, one
  // at a time: for readers of many rows that keep little of each. `visit` must not write to this
  // store.
  void visit_winners(const DeviceInfo& device,
                     const std::function<void(const ProblemKey&, const Winner&)>& visit);
  std::optional<SearchRecord> find_search(const DeviceInfo& device, const ProblemKey& problem,
                                          Objective objective);
  // The kernel's image of that digest; without one any image of the kernel.
  std::optional<Binary> find_binary(const Digest& kernel_key,
                                    const std::optional<Digest>& image = std::nullopt);
  // True if a row of that kernel is there, be it damaged.
  bool has_binary(const Digest& kernel_key);
  // The compilers that the stored binaries were made with, in any order; not checked by digest.
  std::vector<std::string> compiler_versions();
  // Adds a binary that is not a winner's (or replaces the one of its key).
  void put_binary(const Binary& binary);

  // --- block list
  void block(const BlockEntry& entry);
  // The same for many, in one transaction.
  void block_all(const std::vector<BlockEntry>& entries);
  // Lifts these blocks, of whatever layer: they are no longer blocked here and in layers below,
  // until they are blocked anew. Neither merges nor packs take that along. Throws
  // DatabaseError(kDamaged) if the list is not whole.
  void unblock_all(const std::vector<BlockEntry>& blocks);
  // The row of that key, a block or what lifts it. One that is damaged is a block that nothing
  // lifts.
  std::optional<BlockEntry> find_block(const Digest& kernel_key, const DeviceInfo& device);
  bool is_blocked(const Digest& kernel_key, const DeviceInfo& device);
  // All rows, without those that are damaged.
  std::vector<BlockEntry> block_rows();
  // Those that block.
  std::vector<BlockEntry> blocks();
  // True if this kernel did not end on this problem: such a kernel is not launched for it again,
  // and may be right for others.
  bool did_not_end(const DeviceInfo& device, const ProblemKey& problem, const Config& config,
                   const Digest& kernel_key);
  // Deletes the trials in which a kernel did not end, crashed or was wrong, so that a search comes
  // to it again; gives how many.
  std::int64_t forget_faults(const Digest& kernel_key);
  // False: rows are damaged or lost, so that any kernel may be one that was blocked.
  bool block_list_is_whole();

  // --- problems asked for at run time
  void add_requests(const std::vector<ProblemRequest>& requests);
  std::vector<ProblemRequest> requests();

  // --- upkeep
  StoreStats stats();
  // integrity_check plus every row digest.
  CheckReport check();
  // JSON with integers and figures only (no binaries, no source, no paths, no reasons), sorted, one
  // record per line; docs/cache_format.md has the fields. Without trials it stays small.
  // Of some devices: only what was found on these, and no requests, which are of none.
  std::string export_json(bool with_trials = true, const WantsDevice& wants_device = {});
  // Adds what `json` holds with origin kImported, unverified, by the rules of merge(). Anything
  // that is not exactly an export rejects the whole import with Error(kUsage) saying where and
  // what.
  MergeReport import_json(std::string_view json);
  // Takes over what `other` has and this has not. Of two winners of one problem the one whose
  // kernel is still made is kept (nothing given: that does not count), then the better by
  // better_winner(); of two other rows of one key a fixed one. So merging is commutative,
  // associative and idempotent, of the same `makes_kernel`. Blocks are never lost, but those by
  // timeout and what lifts a block stay where they are (a pack has none of them either). Attempts
  // are not merged, damaged rows left out. Trials that replace a lesser one count as added.
  MergeReport merge(Store& other, const MakesKernel& makes_kernel = {});
  // The same for two databases of the same content, however it came there: SHA-256 over the
  // digests of all whole rows, table by table in key order. Attempts, which are about processes of
  // one machine, do not count. Of kResults neither does what differs between two runs that found
  // the same: when each row came about, and how long compiling and searching took.
  Digest content_digest(DigestOf what = DigestOf::kAll);
  // Writes the verified winners of the wanted devices, with their kernels and these devices' block
  // list, into one file that is only read from then on (mode 0444). It appears at `path` whole, by
  // a rename, in the place of an older pack if there is one. The same rows and label make the same
  // bytes. Throws DatabaseError, with `path` as it was: kUnsafe if a journal or no pack is there.
  PackReport write_pack(const std::filesystem::path& path, const PackOrder& order);
  // The seal of this file; nothing if it is no pack.
  std::optional<PackSeal> pack_seal();
  // Throws DatabaseError(kDamaged) with the first fault that check() finds, or with a row that the
  // schema does not allow, if there is any.
  void require_whole();
  // Deletes trials of problems that have a winner (all but the `keep` best of each), binaries that
  // neither a winner names nor, where it calls a library, one of those trials, and returns how many
  // rows went. Trials of kernels that did not end stay: they keep these from running again.
  // Compacts the file. Throws Error(kUsage) if `keep` is negative.
  std::int64_t prune(std::int64_t keep);
  // How many rows of each kind prune(keep) would delete now; nothing is changed.
  PruneReport prunable(std::int64_t keep);
  // A number that changes when another connection has committed something to this file.
  std::int64_t data_version();
  // Rows found damaged since the store was opened.
  std::int64_t damaged_rows() const;
  // Copies the rows of a damaged file whose digests verify into a new file at `path`, after
  // renaming the old one to `<path>.corrupt-<UTC time>`. Returns the number of rows saved. A file
  // that is whole is rewritten all the same and kept too. Refuses a file of another program or of a
  // newer schema.
  static std::int64_t salvage(const std::filesystem::path& path, const LogSink& log_sink = {});

 private:
  struct State;
  struct Snapshot;
  explicit Store(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Which database of a LayeredStore a row is in; in the order of reading. Of several sites'
// databases the next one has the next number.
enum class Layer : std::int32_t { kUser = 0, kSite = 1, kShipped = INT32_MAX };
std::string layer_name(Layer layer);  // "user", "site", "shipped"

// Read-only layers below the user's database: those of the site, then the shipped one. Reads ask
// the user's first. Damage in a lower layer is a miss, never an error.
//
// A block list that is not known to be whole lets no kernel run that could be on it: a shipped
// layer whose list is damaged is left out; without the list of the user's or of a site's no winner
// is found at all, and what is left are default configs.
class LayeredStore {
 public:
  // Any may be null: there is no such database, and reads do without it. `list_is_lost`: the user
  // or the site has one more, with a block list, but it cannot be read.
  LayeredStore(std::unique_ptr<Store> user, std::unique_ptr<Store> shipped,
               bool list_is_lost = false, std::vector<std::unique_ptr<Store>> sites = {});

  // True if a block list of the user's or the site's is lost, so that no winner is found.
  bool serves_defaults_only() const { return defaults_only_; }
  // The file whose block list is damaged, if that is why; empty for none.
  const std::filesystem::path& damaged_list() const { return damaged_list_; }
  // True if a shipped layer was left out, its block list being damaged.
  bool shipped_left_out() const { return shipped_left_out_; }

  // The user's store; if there is none, an empty one in memory, made now.
  Store& user();
  // The store that was given; null if there is none.
  Store* given_user() { return user_was_given_ ? user_.get() : nullptr; }
  Store* shipped();
  // A read-only layer and where it stands.
  struct Lower {
    std::unique_ptr<Store> store;
    Layer layer;
  };
  // Every layer below the user's, in the order of reading.
  const std::vector<Lower>& lower() const { return lower_; }
  std::optional<Winner> find_winner(const DeviceInfo& device, const ProblemKey& problem,
                                    Objective objective);
  // A winner and where it is.
  struct Found {
    Winner winner;
    Layer layer = Layer::kUser;
  };
  // Every layer's winner of the problem, in the order to be tried: where the first may not be used,
  // the next may. They come in the order of the layers, but for one that was only replayed, which
  // comes behind those of lower layers that were measured and verified.
  std::vector<Found> find_winners(const DeviceInfo& device, const ProblemKey& problem,
                                  Objective objective);
  // As Store's.
  std::optional<Binary> find_binary(const Digest& kernel_key,
                                    const std::optional<Digest>& image = std::nullopt);
  bool has_binary(const Digest& kernel_key);
  // Each once, sorted; `unreadable` is told of layers that cannot be read.
  std::vector<std::string> compiler_versions(const std::function<void(const Error&)>& unreadable);
  // True if a layer has the kernel on its block list, and neither it nor one above has lifted that
  // later; and all such blocks, the user's first. Where a list is not whole nothing is lifted.
  bool is_blocked(const Digest& kernel_key, const DeviceInfo& device);
  std::vector<BlockEntry> blocks();
  // The block that counts, else what lifts the others; nothing: no layer knows the kernel.
  std::optional<BlockEntry> deciding_block(const Digest& kernel_key, const DeviceInfo& device);
  // As Store's, of what the user's own database says.
  bool did_not_end(const DeviceInfo& device, const ProblemKey& problem, const Config& config,
                   const Digest& kernel_key);
  // A stored winner, where it is, and whether it comes before those that other layers have of the
  // same device, problem and objective: the order of find_winners().
  struct Stored {
    WinnerEntry entry;
    Layer layer = Layer::kUser;
    bool comes_first = false;
  };
  // Every winner of every layer, the user's first.
  std::vector<Stored> all_winners();
  // Those that come first.
  std::vector<WinnerEntry> winners();
  // Calls `visit` with each winner of one device, layer by layer, so that a problem and objective
  // may come more than once. As Store::visit_winners().
  void visit_winners(const DeviceInfo& device,
                     const std::function<void(const ProblemKey&, const Winner&, Layer)>& visit);
  // The trials of all layers, the user's first; a config may come more than once.
  std::vector<Trial> trials(const DeviceInfo& device, const ProblemKey& problem);

 private:
  void note_damaged_list(Store& store);
  // Every layer, the user's first.
  std::vector<Store*> all_layers();
  std::unique_ptr<Store> user_;
  bool user_was_given_;
  std::vector<Lower> lower_;
  bool defaults_only_;
  std::filesystem::path damaged_list_;
  bool shipped_left_out_ = false;
};

}  // namespace vitune
