# python/tests/program_ranks.py -- Two processes of benchmarks/programs/fsdp2.py on a CPU: losses and gradients of each step beside PyTorch's.
# SPDX-License-Identifier: Apache-2.0
"""python -m tests.program_ranks STEPS: raises where one differs. The operators are put in by name; aot_eager stands in for Inductor."""
import logging
import statistics
import sys
import tempfile

import torch
import torch.distributed as dist

from .test_programs import FOLDER, MADE, patched

sys.path.insert(0, FOLDER)

from programs import fsdp2  # noqa: E402
from programs.switch import apart  # noqa: E402

#: Of gradients, in fp32: sums are in another order, and each step hands that on.
EXACT = 1e-3


def learnt(way, steps, narrow):
    """Losses, and each step's gradients by name."""
    steps_gradients = []

    def look(model):
        steps_gradients.append({name: parameter.grad.full_tensor().clone() for name, parameter in model.named_parameters()})
    torch._dynamo.reset()
    return fsdp2.learn(way, steps, "cpu", True, narrow, look).losses, steps_gradients


def errors(found, exact):
    """Of one step's gradients, each over its norm."""
    if found.keys() != exact.keys():
        raise AssertionError(f"parameters have other names: {sorted(found.keys() ^ exact.keys())}")
    return [((found[name] - exact[name]).norm() / exact[name].norm()).item() for name in exact]


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def places():
    """That train, over all graphs."""
    return sum(call.replaced and call.trains for made in MADE for graph in made.graphs for call in graph.calls)


def compare(steps):
    exact, exact_gradients = learnt("eager", steps, False)
    with patched():
        losses, gradients = learnt("vitune", steps, False)
        found = places()
    worst = max(max(errors(*both)) for both in zip(gradients, exact_gradients, strict=True))
    expect(apart(exact, losses) < EXACT and worst < EXACT, f"fp32: losses {apart(exact, losses)}, gradients {worst} from PyTorch's")
    print(f"fp32: {len(losses)} steps, {found} places train")
    theirs, theirs_gradients = learnt("eager", steps, True)
    with patched():
        losses, gradients = learnt("vitune", steps, True)
        found = places()
    # In bf16 both are as far from fp32: of the first step's gradients, before steps hand on what was rounded.
    mine, right = (statistics.mean(errors(each[0], exact_gradients[0])) for each in (gradients, theirs_gradients))
    expect(mine < 1.25 * right, f"bf16: gradients {mine} from fp32's, PyTorch's {right}")
    expect(apart(theirs, losses) < 5e-2, f"bf16: losses {apart(theirs, losses)} from PyTorch's")
    print(f"bf16: {len(losses)} steps, {found} places train")


def rank_of(rank, folder, steps):
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    fsdp2.join(rank, "cpu", folder)
    compare(steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_of, (folder, int(sys.argv[1])), nprocs=2)
