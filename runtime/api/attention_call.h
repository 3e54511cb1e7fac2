// runtime/api/attention_call.h -- Attention's functions of vitune.h, on a context that is alive.
//
// What is particular to attention: its description, its key, its pointers. Those that are not
// noexcept throw for what vitune_last_error() then says.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/api/tensors.h"
#include "runtime/context/context.h"
#include "vitune/vitune.h"

namespace vitune {

// A call whose kernel is prepared takes no lock and allocates nothing. Of `call` the tensors are
// not looked at: they are `tensors`.
vitune_status attention_forward(RuntimeContext& runtime, const vitune_attention_desc* desc,
                                const Tensors& tensors, Call call) noexcept;
vitune_status attention_prepare(RuntimeContext& runtime, const vitune_attention_desc* desc);
vitune_status attention_query(RuntimeContext& runtime, const vitune_attention_desc* desc,
                              vitune_selection* selection);
vitune_status attention_workspace(RuntimeContext& runtime, const vitune_attention_desc* desc,
                                  std::size_t& bytes);

}  // namespace vitune
