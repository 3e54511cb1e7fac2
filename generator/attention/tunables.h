// generator/attention/tunables.h -- The tunables of attention's kernels, each declared once.
//
// A new one is a member and a line of the table here, the values that a family tries of it
// (sm80.cpp, sm90.cpp, sm90_pipelined.cpp) with the rules for them, and the template that reads it
// (docs/add_a_parameter.md). Families that do not speak of it are without it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace vitune {

// A config's tunables as numbers; here, what a config is without them.
struct AttentionTunables {
  std::int64_t resident = 0, warps = 4, row_tiles = 1, block_n = 64, stages = 1,
               query_in_registers = 1, heads_per_cta = 1, row_split = 1, constant_keys = 0,
               min_ctas = 1, persistent = 0, bias_in_registers = 0, swizzle = 0, producer = 0,
               values_first = 0, swap_ab_rows = 0, key_split = 1, even_items = 0;
};

struct AttentionTunable {
  std::string_view name;
  std::int64_t AttentionTunables::*value;
  std::string_view doc;
  bool needed = false;  // there always has been one, and no value means "without it"
};

// In the order in which spaces are walked: those that many rules read come early, so that rules are
// decided early. Each is a constant of its name in the kernel's Config, but kConstantKeys: that
// decides whether kKeys is the count or 0.
inline constexpr std::array kAttentionTunables = std::to_array<AttentionTunable>({
    {"kResident", &AttentionTunables::resident,
     "0: K and V stream through; 1: all of a head's K and V are resident"},
    {"kConstantKeys", &AttentionTunables::constant_keys,
     "1: the token count is a constant of the kernel", true},
    {"kSwizzle", &AttentionTunables::swizzle,
     "0: padded rows and mma.sync; else bytes per swizzled row, and wgmma (sm_90a)"},
    {"kProducer", &AttentionTunables::producer,
     "1: four warps more do nothing but copy (wgmma only); 2: by tensor maps (TMA)"},
    {"kSpareRows", &AttentionTunables::swap_ab_rows,
     "8: a warpgroup more takes up to 8 rows beyond a multiple of 64 (kProducer = 2)"},
    {"kValuesFirst", &AttentionTunables::values_first,
     "1: V is waited for before a softmax (kProducer), 0: behind"},
    {"kEvenItems", &AttentionTunables::even_items,
     "1: the last work items have fewer rows, so that CTAs end together (kProducer)"},
    {"kKeySplit", &AttentionTunables::key_split,
     "warps that share the keys of a row (streaming, mma.sync)"},
    {"kWarps", &AttentionTunables::warps, "warps per CTA that compute", true},
    {"kRowTiles", &AttentionTunables::row_tiles, "16-row tiles that a warp works on at once"},
    {"kBlockN", &AttentionTunables::block_n, "keys per step", true},
    {"kStages", &AttentionTunables::stages,
     "K/V tiles (streaming, kProducer) or query tiles (resident) in flight"},
    {"kQueryInRegisters", &AttentionTunables::query_in_registers,
     "1: query fragments stay in registers, 0: they are read again for each step"},
    {"kHeadsPerCta", &AttentionTunables::heads_per_cta,
     "heads (windows) a resident CTA works on at once, each by its own warps"},
    {"kRowSplit", &AttentionTunables::row_split, "CTAs that share the rows of a head (resident)"},
    {"kMinCtas", &AttentionTunables::min_ctas, "CTAs per SM the compiler leaves room for"},
    {"kPersistent", &AttentionTunables::persistent, "1: CTAs walk over many work items"},
    {"kBiasInRegisters", &AttentionTunables::bias_in_registers,
     "1: a warp keeps its rows' bias for the next item (kProducer: in shared memory)"},
});

}  // namespace vitune
