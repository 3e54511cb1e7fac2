// tests/runtime/header_c99.c -- vitune.h in a C99 program: it compiles, and its macros initialise.
#include "vitune/vitune.h"

// Fills in what the header's example does; the size of the description as C sees it.
size_t vitune_test_c99_example(vitune_attention_desc* out);
size_t vitune_test_c99_example(vitune_attention_desc* out) {
  const vitune_context_options options = VITUNE_CONTEXT_OPTIONS_INIT;
  const vitune_selection selection = VITUNE_SELECTION_INIT;
  const vitune_stats stats = VITUNE_STATS_INIT;
  vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
  desc.batch = 32, desc.heads = 12, desc.nq = desc.nk = 197, desc.d = 64;
  desc.q = desc.k = desc.v = vitune_packed_strides(12, 197, 64);
  desc.o = vitune_bnhd_strides(12, 197, 64);
  *out = desc;
  if (options.size != sizeof(options) || selection.size != sizeof(selection)) return 0;
  if (stats.size != sizeof(stats) || options.log != NULL || selection.problem[0] != 0) return 0;
  return desc.size;
}
