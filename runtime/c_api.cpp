// runtime/c_api.cpp -- The functions of include/vitune/vitune.h.
#include "vitune/vitune.h"

extern "C" {

int32_t vitune_version(void) {
  return VITUNE_VERSION_MAJOR * 10000 + VITUNE_VERSION_MINOR * 100 + VITUNE_VERSION_PATCH;
}

}  // extern "C"
