// cli/arguments/options.h -- The three kinds of options that the command knows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// Boost's headers take longer to compile than most verbs: those who only pass options on go
// without.
namespace boost::program_options {
class options_description;
}

namespace vitune {

// Names are Boost's: "jobs,j" is --jobs and -j.

// --name VALUE, a text; Session::has() is false for a default.
void add_value(boost::program_options::options_description& options, const char* name,
               const char* placeholder, const std::string& doc,
               const char* default_value = nullptr);
// --name VALUE, may be repeated.
void add_list(boost::program_options::options_description& options, const char* name,
              const char* placeholder, const std::string& doc);
// --name, on or off.
void add_switch(boost::program_options::options_description& options, const char* name,
                const std::string& doc);

}  // namespace vitune
