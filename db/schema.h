// db/schema.h -- The embedded text of db/schema/*.sql.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "core/embedded_file.h"

namespace vitune {

std::span<const EmbeddedFile> embedded_schema();

}  // namespace vitune
