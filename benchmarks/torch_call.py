#!/usr/bin/env python3
# benchmarks/torch_call.py -- Host time of one attention call from PyTorch: through the operators' library and by ctypes.
# SPDX-License-Identifier: Apache-2.0
"""On a GPU the calls are real and launches queue; without one (make python-test's environment, VITUNE_TEST_OPERATORS and
VITUNE_TEST_LIBRARY set) tensors are the CPU's and each launch repeats the first one on the emulated device, which defers it.
Prints microseconds per call, the least of several rounds, of what a call is made of."""
import argparse
import ctypes
import json
import os
import pathlib
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))


def microseconds(call, arguments, repeat, rounds=21):
    best = []
    for _ in range(rounds):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(repeat):
            call(*arguments)
        best.append((time.perf_counter() - begin) / repeat)
    return min(best) * 1e6


def emulated(attention_ops, q, k, v):
    """Launches repeat the first one; what a call reads of its tensors it still reads."""
    attention_ops.is_on_gpu = lambda tensor: True
    if attention_ops.library is not None:
        freeze = ctypes.CDLL(os.environ["VITUNE_TEST_OPERATORS"]).vitune_torch_staged_freeze
        freeze()
        return
    from tests import torch_staged
    context, frozen = attention_ops.context_of(0), []
    real = attention_ops.launch_pointers

    def keep(context, plan, pointers, stream):
        frozen.append(pointers)
        real(context, plan, pointers, stream)
    attention_ops.launch_pointers = keep
    out = torch.empty_like(q)
    torch_staged.launch_staged(attention_ops.make_plan(q, k, v, None, False, None, False, False, True), q, k, v, None, out, None)
    attention_ops.launch_pointers = real

    def launch(plan, q, k, v, mask, out, lse):
        q.get_device(), q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
        real(context, plan, frozen[0], 0)
    attention_ops.launch = launch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", help="on a GPU: path of libvitune_torch.so; 'none': ctypes; default: the one beside libvitune")
    parser.add_argument("--repeat", type=int, default=1000)
    arguments = parser.parse_args()
    import vitune
    from vitune._runtime import native
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        from tests import support  # noqa: F401 (names the libraries)
    elif arguments.operators:
        native.wanted = None if arguments.operators == "none" else arguments.operators
    import vitune.torch
    from vitune._dropin import sdpa as sdpa_dropin
    from vitune._ops import attention as attention_ops
    q, k, v = torch.randn(1, 197, 3, 12, 64, dtype=torch.bfloat16, device="cuda" if on_gpu else "cpu") \
        .permute(2, 0, 3, 1, 4).unbind(0)
    if not on_gpu:
        emulated(attention_ops, q, k, v)
    op = torch.ops.vitune.attention.default
    found = {"way": "ctypes" if attention_ops.library is None else "library"}
    for name, mode in (("inference_mode", torch.inference_mode), ("no_grad", torch.no_grad)):
        with mode(), vitune.torch.enabled():
            attend = torch.nn.functional.scaled_dot_product_attention
            context = attention_ops.context_of(0)
            calls = {"vitune.attention": (vitune.attention, (q, k, v)),
                     "drop-in": (attend, (q, k, v)),
                     "operator": (op, (q, k, v, None, False, None, False, False)),
                     "empty_strided": (lambda: torch.empty_strided(q.shape, q.stride(), dtype=q.dtype, device=q.device), ()),
                     "gradient check": (attention_ops.needs_gradient, (q, k, v, None))}
            if attention_ops.library is not None:
                calls["operator of the drop-in"] = (attention_ops.call_attend_or_torch, (q, k, v))
            if on_gpu:
                out = torch.empty_like(q)
                plan = attention_ops.make_plan(q, k, v, None, False, None, False, False, True)
                calls["drop-in, fp32 mask"] = attend, (q, k, v, torch.zeros(197, 197, device=q.device))
                calls["drop-in, scale and causal"] = lambda *qkv: attend(*qkv, scale=0.125, is_causal=True), (q, k, v)
                calls["torch SDPA"] = (sdpa_dropin.original, (q, k, v))
                calls["launch by ctypes"] = (attention_ops.launch, (plan, q, k, v, None, out, None))
            for call, given in calls.values():
                call(*given)
            found[name] = {key: round(microseconds(*call, arguments.repeat), 2) for key, call in calls.items()}
            assert context.stats().failed_calls == 0
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
