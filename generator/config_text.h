// generator/config_text.h -- What the main text of a kernel is made of: members of its generated
// Config, and entries.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vitune {

// Members of a generated Config: one number, one flag.
std::string config_number(std::string_view name, std::int64_t value);
std::string config_flag(std::string_view name, bool value);
// The includes, then a Config of these members.
std::string config_source(const std::string& includes, const std::string& members);

// An entry that calls `function` of the templates with its parameters, of type `params`; `bounds`:
// its threads, and the CTAs of an SM that its registers leave room for; `attributes` stand before.
std::string entry_text(std::string_view bounds, std::string_view entry, std::string_view params,
                       std::string_view function, std::string_view attributes = {});

}  // namespace vitune
