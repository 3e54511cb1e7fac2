// cli/arguments/options.cpp -- Options in the words of Boost.Program_options.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/options.h"

#include <boost/program_options.hpp>
#include <vector>

namespace vitune {

namespace po = boost::program_options;

void add_value(po::options_description& options, const char* name, const char* placeholder,
               const std::string& doc, const char* default_value) {
  auto* value = po::value<std::string>()->value_name(placeholder);
  if (default_value != nullptr) value->default_value(default_value);
  options.add_options()(name, value, doc.c_str());
}

void add_list(po::options_description& options, const char* name, const char* placeholder,
              const std::string& doc) {
  auto* value = po::value<std::vector<std::string>>()->value_name(placeholder);
  options.add_options()(name, value, doc.c_str());
}

void add_switch(po::options_description& options, const char* name, const std::string& doc) {
  options.add_options()(name, po::bool_switch(), doc.c_str());
}

}  // namespace vitune
