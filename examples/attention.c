// examples/attention.c -- One call from C: attention over the packed q, k, v of a vision
// transformer.
//
// Prints which kernel served and compares one value with the CPU's. Ends with 77 without a GPU.
#include <stdio.h>
#include <stdlib.h>

#include "gpu.h"
#include "reference.h"
#include "vitune/vitune.h"

enum { kBatch = 2, kHeads = 12, kTokens = 197, kHeadSize = 64, kNoGpu = 77 };

static void check(vitune_status status) {
  if (status == VITUNE_OK) return;
  fprintf(stderr, "%s: %s\n", vitune_status_name(status), vitune_last_error());
  exit(status == VITUNE_NO_DEVICE ? kNoGpu : 1);
}

int main(void) {
  vitune_context* context = NULL;
  check(vitune_context_create(NULL, &context));

  // The output of a transformer block's projection: [batch, tokens, 3, heads, head size].
  const size_t values = (size_t)kBatch * kTokens * kHeads * kHeadSize;
  uint16_t* qkv = malloc(3 * values * sizeof(*qkv));
  uint16_t* out = calloc(values, sizeof(*out));
  if (qkv == NULL || out == NULL) return 1;
  fill_bf16(qkv, 3 * values);
  gpu_open();
  uint16_t* gpu_qkv = gpu_upload(qkv, 3 * values * sizeof(*qkv));
  uint16_t* gpu_out = gpu_upload(out, values * sizeof(*out));

  // q, k and v are views of it; the output is written so that the next layer needs no copy.
  vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
  desc.batch = kBatch, desc.heads = kHeads, desc.nq = desc.nk = kTokens, desc.d = kHeadSize;
  desc.q = desc.k = desc.v = vitune_packed_strides(kHeads, kTokens, kHeadSize);
  desc.o = vitune_bnhd_strides(kHeads, kTokens, kHeadSize);
  const uint16_t* k = gpu_qkv + kHeads * kHeadSize;
  check(vitune_attention_forward(context, &desc, gpu_qkv, k, k + kHeads * kHeadSize, NULL, NULL,
                                 gpu_out, NULL, NULL, 0, NULL));
  gpu_download(out, gpu_out, values * sizeof(*out));

  vitune_selection selection = VITUNE_SELECTION_INIT;
  check(vitune_query(context, &desc, &selection));
  printf("kernel: %s\nwhy:    %s\n", selection.config, selection.reason);

  const int64_t b = 1, i = 100, h = 7, c = 34;
  const double got = float_of(out[((b * kTokens + i) * kHeads + h) * kHeadSize + c]);
  const double wanted = attention_value(qkv, kTokens, kHeads, kHeadSize, b, i, h, c);
  printf("GPU %.6f, CPU %.6f\n", got, wanted);

  check(vitune_context_destroy(context));
  free(qkv);
  free(out);
  // The weights are rounded to bf16: by 2^-9 at most of values up to 1. The output by far less.
  return fabs(got - wanted) <= 0.002 ? 0 : 1;
}
