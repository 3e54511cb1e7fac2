// generator/config_family.cpp -- A family's name in front of a config, and taken off again.
// SPDX-License-Identifier: Apache-2.0
#include "generator/config_family.h"

#include "core/error.h"
#include "core/format.h"

namespace vitune {

std::string shown_text(const Operator& op, const Config& config) {
  Config named = config;
  named.set_family(op.family(config));
  return named.text();
}

Config config_from_text(const Operator& op, std::string_view text) {
  Config config = Config::parse(text);
  const std::string named = config.family();
  Config stored = config;
  stored.set_family({});
  // A family that the tunables tell is not stored a second time.
  const std::string told = op.family(stored);
  if (named.empty() || named == told) return stored;
  if (op.family(config) == named) return config;
  throw Error(ErrorCode::kUsage,
              formatted("config \"{}\": its tunables are those of family={}; leave the family out "
                        "or change the tunables",
                        config.text(), told));
}

}  // namespace vitune
