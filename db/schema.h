// db/schema.h -- The embedded text of db/schema/*.sql.
#pragma once

#include <span>

#include "core/embedded_file.h"

namespace vitune {

std::span<const EmbeddedFile> embedded_schema();

}  // namespace vitune
