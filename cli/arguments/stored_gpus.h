// cli/arguments/stored_gpus.h -- The GPUs of a database as the user names them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/arguments/session.h"
#include "db/store.h"

namespace vitune {

// --gpu NAME, may be repeated.
void add_gpu_option(boost::program_options::options_description& options);

// Those of `devices` that --gpu names: by a part of their name, in capitals or not, or by their
// whole key
// (`vitune devices` shows both). Empty without --gpu: all of them. Throws Error(kUsage), with those
// that are there, for a name that fits none.
WantsDevice wanted_gpus(const Session& session, const std::vector<DeviceInfo>& devices);

}  // namespace vitune
