#!/usr/bin/env python3
# cmake/trace_timm_attention.py -- Traces the attention calls of models of timm, for make_timm_models.py.
#
# Usage: trace_timm_attention.py MODEL ... > trace.jsonl
#
# Needs timm and PyTorch, no GPU and no weights: models are built on the meta device, in fp32, and run for two images. A model
# that never calls scaled_dot_product_attention has one line, without a call.
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import sys
import warnings

import timm
import torch
from torch.overrides import TorchFunctionMode

IMAGES = 2
SDPA = torch.nn.functional.scaled_dot_product_attention


def call_of(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """A call as the trace has it, but for its model and count."""
    mask = None if attn_mask is None else {"shape": list(attn_mask.shape), "strides": list(attn_mask.stride()),
                                           "dtype": str(attn_mask.dtype).removeprefix("torch.")}
    return {"q": list(query.shape), "k": list(key.shape), "q_strides": list(query.stride()), "k_strides": list(key.stride()),
            "v_strides": list(value.stride()), "mask": mask, "causal": is_causal, "scale": scale}


class Calls(TorchFunctionMode):
    """Counts the calls of a pass."""

    def __init__(self):
        super().__init__()
        self.counts = {}  # by the call as JSON

    def __torch_function__(self, function, types, positional=(), named=None):
        if function is SDPA:
            call = json.dumps(call_of(*positional, **(named or {})))
            self.counts[call] = self.counts.get(call, 0) + 1
        return function(*positional, **(named or {}))


def lines_of(name):
    with torch.device("meta"):
        model = timm.create_model(name).eval()
    with torch.no_grad(), Calls() as calls:
        model(torch.empty(IMAGES, *model.pretrained_cfg.get("input_size", (3, 224, 224)), device="meta"))
    return [{"model": name, "calls": count, **json.loads(call)} for call, count in calls.counts.items()] or [{"model": name, "calls": 0}]


def main():
    parser = argparse.ArgumentParser(description="Prints the attention calls of models of timm, one in each line.")
    parser.add_argument("model", nargs="+")
    warnings.simplefilter("ignore")
    timm.layers.set_fused_attn(True, experimental=True)
    for name in parser.parse_args().model:
        for line in lines_of(name):
            sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
