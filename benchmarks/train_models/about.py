# benchmarks/train_models/about.py -- How each figure of a result is measured.
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

METHOD = {
    "step": "forward, cross entropy, backward and AdamW (fused, fp32 or bf16 state as the weights are) on one generated batch; dropout "
    "and drop path as timm has them by default and as CCT's authors train; random weights. The learning rate is 0, so that all "
    "ways and all steps multiply the same numbers, and nothing else of a step is left out",
    "params": "amp: fp32 weights under autocast to bf16; bf16: weights, gradients and optimizer in bf16",
    "ms": "time per step: steps in a row between two CUDA events, as many of each way as fill about 40 ms by that way's own time, at least "
    "4 and at most 100, all ways once per round in a random order; "
    "median and its distribution-free 95 % interval",
    "called": "as Python calls it, the host's time included; compile_step_graph copies a new batch in and replays one CUDA graph "
    "of the whole compiled step, and so does vitune_train_step, which also looks at what may have changed",
    "graph": "one CUDA graph of the whole step, optimizer included; of max-autotune the mode without graphs of its own; "
    "reduce-overhead's would be default's again",
    "idle_ms": "one step between two CUDA events, the GPU idle before, so that it waits for the host first: what a single step takes",
    "in_a_row": "steps in a row of a sample, by way",
    "host_ms": "until the calls of one step had returned, the GPU idle before",
    "sdpa": "the order of PyTorch's attention kernels that is fastest in the eager step serves all of its ways",
    "peak_gb": "GiB that a step takes at most, weights, optimizer, batch and workspaces of libraries included, after Python's garbage "
    "is collected",
    "kinds_us": "kernels of a step by what their names say they do, of three steps under a profiler, microseconds; of the graph "
    "where there is one",
    "floor_us": "the operators of an eager step, forward and backward, each reading its operands and writing its results once or "
    "multiplying at the rates of `ceilings`; of products, attention, norms, activations, convolutions and the optimizer only",
    "loss": "a way whose loss is 5 % from the first way's, whose gradients' norm is 1.5 times off, or whose optimizer does not "
    "count one step, fails",
    "gain": "the best of PyTorch's ways over the best of vitune's, paired round by round; median and interval. Ways that "
    "record graphs of their own as called (compile_reduce, compile_max) have rounds of their own, after the others",
    "eager_gain": "the eager step over the same with vitune's drop-in (install(timm=True, training=True)), paired alike",
    "losses": "300 steps at a learning rate of 0.0003 over the row's seeds, as CUDA graphs, no dropout, images of ten generated patterns and noise: mean "
    "distance of each step's loss to that of the same steps in fp32",
}
