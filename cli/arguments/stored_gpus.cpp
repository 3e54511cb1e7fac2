// cli/arguments/stored_gpus.cpp -- Names of GPUs against those that a database has rows of.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/stored_gpus.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "cli/arguments/options.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_named(const DeviceInfo& device, const std::string& name) {
  return device.key() == name || lower(device.name).find(lower(name)) != std::string::npos;
}

}  // namespace

void add_gpu_option(boost::program_options::options_description& options) {
  add_list(options, "gpu", "NAME",
           "only what is of this kind of GPU, for example h200: a part of its name, or its whole "
           "key; may be repeated");
}

WantsDevice wanted_gpus(const Session& session, const std::vector<DeviceInfo>& devices) {
  if (!session.has("gpu")) return {};
  std::set<std::string> keys;
  for (const std::string& name : session.texts("gpu")) {
    bool found = false;
    for (const DeviceInfo& device : devices) {
      if (name.empty() || !is_named(device, name)) continue;
      keys.insert(device.key());
      found = true;
    }
    if (found) continue;
    std::set<std::string> names;
    for (const DeviceInfo& device : devices) names.insert(device.name);
    const std::string known = names.empty() ? "none" : joined(names, ", ");
    throw Error(ErrorCode::kUsage,
                formatted("--gpu '{}': the database has nothing of such a GPU; it has of: {}", name,
                          known));
  }
  return [keys](const DeviceInfo& device) { return keys.contains(device.key()); };
}

}  // namespace vitune
