// db/rekey.h -- Gives stored rows the keys that their kernels have now.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/digest.h"
#include "core/log.h"
#include "db/file_guard.h"
#include "db/records.h"
#include "db/store.h"

namespace vitune {

// Facts from beyond the file, all by the old keys.
struct RekeyFacts {
  // The images that were compared. A kernel that is not here goes along with any image: its sources
  // are the same.
  std::map<Digest, std::set<Digest>> compared;
  // Blocks of other databases.
  std::vector<BlockEntry> blocks;
  // Images that winners of the file name and only other databases have.
  std::vector<Binary> binaries;
};

// How many rows of each table have another kernel key now, and how many blocks were copied.
struct RekeyReport {
  std::int64_t trials = 0, winners = 0, searches = 0, binaries = 0, blocks = 0;
  // Old keys whose rows stay: the file has an image that was not compared.
  std::set<Digest> refused;
};

// In the file at `path`: each row of a kernel that is a key of `keys` is of that kernel's new key
// from then on, with all else that it says, in one transaction; rows of other kernels stay as they
// are. Where a binary of the new key is there already it stays. A block stays and is copied for the
// new key, since older versions and other databases ask for the old one; of two blocks the later
// counts, and what lifts a block of one key lifts none of another. The block list is sealed anew
// and the file compacted. The caller knows that both keys are of the same machine code. Throws
// DatabaseError as Store::open() for writing, and kDamaged with nothing done if the block list is
// not whole; Error(kFailure) if a new key is one to be replaced.
RekeyReport rekey(const std::filesystem::path& path, const std::map<Digest, Digest>& keys,
                  const RekeyFacts& facts = {}, const LogSink& log_sink = {},
                  std::optional<std::chrono::milliseconds> patience = {},
                  const std::atomic<bool>* stop = nullptr, const Trust& trust = {});

// Calls `visit` with every whole image of these kernels in the file at `path` and the image's
// digest, one at a time. Throws DatabaseError as Store::open() for reading.
void visit_images(const std::filesystem::path& path, const std::set<Digest>& kernels,
                  const std::function<void(const Binary&, const Digest& image)>& visit,
                  const LogSink& log_sink = {},
                  std::optional<std::chrono::milliseconds> patience = {},
                  const std::atomic<bool>* stop = nullptr, const Trust& trust = {});

}  // namespace vitune
