// cli/verbs/show_space.h -- The parts of vitune show that look at the generator instead of the
// database.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/arguments/session.h"
#include "core/device_info.h"

namespace vitune {

int show_space(Session& session);        // --space: tunables, values, rules, sizes
int show_explanation(Session& session);  // --explain: whether a config is in the space, and why not
int show_source(Session& session);       // --source: the text that NVRTC gets, without the headers

// The device whose facts decide the space: --arch, --device N, else the H200.
DeviceInfo space_device(Session& session);

}  // namespace vitune
