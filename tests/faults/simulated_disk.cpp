// tests/faults/simulated_disk.cpp -- Pending changes, and a draw from them.
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/simulated_disk.h"

#include <sys/stat.h>

#include <algorithm>
#include <stdexcept>

namespace vitune::faults {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kDiskSector = 512;

std::uint64_t inode_at(const fs::path& path) {
  struct ::stat info {};
  if (::lstat(path.c_str(), &info) != 0) throw std::runtime_error("no file " + path.string());
  return info.st_ino;
}

bool draw(std::mt19937& random, double chance) {
  return std::uniform_real_distribution<double>()(random) < chance;
}

// A file longer by a length that reached the disk before its data: the hole holds anything.
void lengthen(std::string& bytes, std::uint64_t size, bool with_noise, std::mt19937& random) {
  for (std::uint64_t i = bytes.size(); i < size; ++i)
    bytes.push_back(with_noise ? static_cast<char>(random()) : '\0');
}

}  // namespace

SimulatedDisk::SimulatedDisk(const fs::path& folder, bool syncs) : syncs_(syncs) {
  folders_[inode_at(folder)] = folder.string();
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (entry.is_directory()) {
      folders_[inode_at(path)] = path;
    } else {
      now_[path] = new_file(inode_at(path));
      files_[now_[path]].certain = test::read_bytes(path);
    }
  }
  certain_ = now_;
}

SimulatedDisk::Id SimulatedDisk::new_file(std::uint64_t inode) {
  files_.emplace_back();
  inodes_[inode] = files_.size() - 1;
  return inodes_[inode];
}

SimulatedDisk::Id SimulatedDisk::file_of(std::uint64_t inode) {
  const auto found = inodes_.find(inode);
  if (found == inodes_.end()) throw std::runtime_error("a call on a file that nobody made");
  return found->second;
}

void SimulatedDisk::change_file(std::uint64_t inode, Change change) {
  files_[file_of(inode)].pending.push_back(std::move(change));
}

void SimulatedDisk::take(const NameChange& change, Names& names) {
  switch (change.call) {
    case Call::kOpen:
    case Call::kLink:
      names[change.to] = change.file;
      return;
    case Call::kUnlink:
      names.erase(change.path);
      return;
    case Call::kRename:
      names[change.to] = names.at(change.path);
      names.erase(change.path);
      return;
    case Call::kExchange:
      std::swap(names.at(change.path), names.at(change.to));
      return;
    default:
      throw std::runtime_error("no change of names");
  }
}

void SimulatedDisk::change_names(NameChange change) {
  take(change, now_);
  pending_.push_back(std::move(change));
}

std::string SimulatedDisk::newest_bytes(const File& file) {
  std::string bytes = file.certain;
  for (const Change& change : file.pending) {
    if (change.truncates || bytes.size() < change.at + change.data.size())
      bytes.resize(change.at + change.data.size());
    bytes.replace(change.at, change.data.size(), change.data);
  }
  return bytes;
}

SimulatedDisk::Files SimulatedDisk::now() const {
  Files found;
  for (const auto& [path, file] : now_) found[path] = newest_bytes(files_[file]);
  return found;
}

void SimulatedDisk::sync(std::uint64_t inode) {
  if (!syncs_) return;
  const auto folder = folders_.find(inode);
  if (folder == folders_.end()) {
    File& file = files_[file_of(inode)];
    file = {newest_bytes(file), {}};
    return;
  }
  // Earlier changes in other folders are on the disk then, too: names have one order.
  const auto is_in = [&](const NameChange& change) {
    const fs::path path = change.to.empty() ? change.path : change.to;
    return path.parent_path() == folder->second;
  };
  const auto last = std::find_if(pending_.rbegin(), pending_.rend(), is_in).base();
  for (auto it = pending_.begin(); it != last; ++it) take(*it, certain_);
  pending_.erase(pending_.begin(), last);
}

void SimulatedDisk::apply(const RecordedCall& call) {
  const Logged& logged = call.logged;
  if (logged.failed) return;
  switch (logged.call) {
    case Call::kOpen:
      if (logged.created) {
        const Id file = new_file(logged.inode);
        if (!call.path.empty()) change_names({Call::kOpen, "", call.path, file});
      } else if (logged.truncated) {
        change_file(logged.inode, {0, "", true});
      }
      return;
    case Call::kWrite:
      return change_file(logged.inode, {logged.offset, call.data, false});
    case Call::kTruncate:
      return change_file(logged.inode, {logged.offset, "", true});
    case Call::kSync:
      return sync(logged.inode);
    case Call::kLink:
      return change_names({Call::kLink, "", call.to, file_of(logged.inode)});
    case Call::kRename:
    case Call::kExchange:
      return change_names({logged.call, call.path, call.to, 0});
    case Call::kUnlink:
      return change_names({Call::kUnlink, call.path, "", 0});
    default:
      return;
  }
}

std::string SimulatedDisk::possible_bytes(const File& file, std::mt19937& random) {
  constexpr double kChances[] = {0, 0.1, 0.5, 0.9, 1};
  const double chance = kChances[random() % std::size(kChances)];
  const bool with_noise = draw(random, 0.5);
  std::string bytes = file.certain;
  std::vector<const Change*> order;
  for (const Change& change : file.pending) order.push_back(&change);
  if (chance < 1 && draw(random, 0.5)) std::shuffle(order.begin(), order.end(), random);
  for (const Change* change : order) {
    if (change->truncates) {
      if (!draw(random, chance)) continue;
      if (change->at < bytes.size()) bytes.resize(change->at);
      lengthen(bytes, change->at, with_noise, random);
    }
    for (std::uint64_t from = 0; from < change->data.size();) {
      const std::uint64_t at = change->at + from;
      const std::uint64_t size =
          std::min(kDiskSector - at % kDiskSector, change->data.size() - from);
      if (draw(random, chance)) {
        lengthen(bytes, at + size, with_noise, random);
        bytes.replace(at, size, change->data, from, size);
      }
      from += size;
    }
  }
  return bytes;
}

SimulatedDisk::Files SimulatedDisk::after_power_loss(std::mt19937& random) const {
  Names names = certain_;
  const std::size_t kept = random() % (pending_.size() + 1);
  for (std::size_t i = 0; i < kept; ++i) take(pending_[i], names);
  Files found;
  for (const auto& [path, file] : names) found[path] = possible_bytes(files_[file], random);
  return found;
}

}  // namespace vitune::faults
