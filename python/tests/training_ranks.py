# python/tests/training_ranks.py -- Two processes that train small models together, by DDP or FSDP2: compiled, and in eager mode with the drop-in.
# SPDX-License-Identifier: Apache-2.0
"""python -m tests.training_ranks FOLDER: raises where a gradient differs. On CPUs, by gloo, which meets in a file of the folder."""
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import vitune

from . import torch_cases
from .support import DEVICE
from .test_torch_compile import without_inductor  # first: it says which operators' library is under test

from vitune._compile import backend  # noqa: E402


class Block(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class Checkpointed(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


def model():
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(3)))


def gradients(train, parameters, x, amp):
    with torch.autocast("cpu", torch.bfloat16, enabled=amp):
        train(x).float().square().mean().backward()
    grads = [parameter.grad for parameter in parameters]
    return [(grad.full_tensor() if hasattr(grad, "full_tensor") else grad).clone() for grad in grads]


def expect_alike(name, got, want, bound):
    for mine, right in zip(got, want, strict=True):
        if (mine - right).norm() > bound * right.norm() + 1e-9:
            raise AssertionError(f"{name}: {(mine - right).norm()} of {right.norm()}")


def trained(compiled):
    return sum(call.replaced for call in vitune.report(compiled).calls if call.trains)


def by_ddp(x):
    want_of = nn.parallel.DistributedDataParallel(model())
    for mode in ("ddp_optimizer", "no_optimization", "python_reducer"):
        for amp in (False, True):
            torch._dynamo.reset()
            torch._dynamo.config.optimize_ddp = mode
            ours = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.01)  # cut behind each layer
            compiled = vitune.compile(ours, replace=["linear_train", "norm_train"])
            want_of.zero_grad(set_to_none=True)
            want = gradients(want_of, list(want_of.parameters()), x, amp)
            expect_alike(f"DDP, {mode}, {amp}", gradients(compiled, list(ours.parameters()), x, amp), want, 2e-2 if amp else 1e-5)
            print(f"DDP, {mode}, autocast {amp}: {trained(compiled)} places train")
            if not trained(compiled):
                raise AssertionError(f"nothing trains: {vitune.report(compiled)}")


def without_sync(x):
    """Two micro-batches, of which the second one's backward pass sends the sum."""
    torch._dynamo.reset()
    torch._dynamo.config.optimize_ddp = "ddp_optimizer"
    found = []
    for compiles in (True, False):
        layers = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.01)
        train = vitune.compile(layers, replace=["linear_train", "norm_train"]) if compiles else layers
        with layers.no_sync():
            train(x).square().mean().backward()
        found.append(gradients(train, list(layers.parameters()), 2 * x, False))
    expect_alike("DDP, no_sync", *found, 1e-5)
    print("DDP, no_sync: two micro-batches")


def by_fsdp(x):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    def sharded(order):
        """The model, what is called, and what was compiled."""
        whole, compiled = model().bfloat16().float(), []
        whole[1] = Checkpointed(whole[1])

        def compile_of(module, *orders):
            if order in orders:
                module = vitune.compile(module, replace=["linear_train", "norm_train"])
                compiled.append(module)
            return module
        for place, block in enumerate(whole):
            block = fully_shard(compile_of(block, "block, then shard"), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
            whole[place] = compile_of(block, "shard, then block")
        return whole, compile_of(fully_shard(whole), "shard, then whole"), compiled
    theirs, train, _ = sharded("")
    want = gradients(train, list(theirs.parameters()), x, False)
    for order in ("block, then shard", "shard, then block", "shard, then whole"):
        torch._dynamo.reset()
        ours, train, compiled = sharded(order)
        expect_alike(f"FSDP2, {order}", gradients(train, list(ours.parameters()), x, False), want, 2e-2)
        print(f"FSDP2, {order}: {[trained(module) for module in compiled]} places train\n{vitune.report(compiled[0])}")


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(32), torch_cases.Block()

    def forward(self, x):
        return x + self.attention(self.norm(x))


def in_eager_mode(x):
    """The drop-in, where there is a device to launch on."""
    from torch.distributed.fsdp import fully_shard

    from .training_staged import TrainingTest

    def gradients_of(wrap, training):
        torch.manual_seed(0)
        layers = nn.Sequential(Attending(), Checkpointed(Attending()))
        layers = wrap(layers)
        with vitune.torch.enabled(training=training):
            return gradients(layers, list(layers.parameters()), x, True)

    def sharded(layers):
        for layer in layers:
            fully_shard(layer)
        return fully_shard(layers)
    case = TrainingTest("counts")
    case.setUp()
    for name, wrap in (("DDP", lambda layers: nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.01)), ("FSDP2", sharded)):
        want = gradients_of(wrap, False)
        case.counts()
        expect_alike(f"eager mode, {name}", gradients_of(wrap, True), want, 2e-2)
        print(f"eager mode, {name}: {case.counts()} served")
    case.doCleanups()


def rank_of(rank, folder):
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4096
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    backend.compile_fx = without_inductor
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    x = torch.randn(2, 5, 32)
    by_ddp(x)
    without_sync(x)
    by_fsdp(x)
    if DEVICE is not None:
        in_eager_mode(torch.randn(2, 9, 32))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank_of, (sys.argv[1],), nprocs=2)
