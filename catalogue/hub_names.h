// catalogue/hub_names.h -- Models as Hugging Face's hub calls them, by the names that timm has.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace vitune {

// The timm model of the same layers as that of the hub ("facebook/dinov2-base"); empty if it is not
// known. Its images may have another size.
std::string_view timm_name_of(std::string_view hub_name);

// Every name that timm_name_of() knows.
std::vector<std::string_view> hub_names();

}  // namespace vitune
