# python/tests/taped.py -- Stands in for CUDA graphs on a CPU: a tape of PyTorch's operators with the tensors that they were called with.
# SPDX-License-Identifier: Apache-2.0
"""As a graph, it holds addresses and constants, its capture leaves no trace, a replay runs no Python of the step, and to ask for a value
while it is made is an error. Random numbers of the CPU are those of its device: each replay draws new ones."""
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ASKS = ("aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::is_nonzero")


def tensors_in(*values):
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


class Tape(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls, self.made, self.before = [], {}, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.name in ASKS:
            raise RuntimeError("operation not permitted when stream is capturing")
        for tensor in tensors_in(args, kwargs):
            storage = tensor.untyped_storage()
            if storage._cdata not in self.made and storage._cdata not in self.before:
                self.before[storage._cdata] = storage, storage.clone()
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        for tensor in tensors_in(result):
            if tensor.untyped_storage()._cdata not in self.before:
                self.made[tensor.untyped_storage()._cdata] = tensor
        return result

    def undo(self):
        for storage, content in self.before.values():
            storage.copy_(content)
        with torch.no_grad():
            for tensor in self.made.values():
                tensor.detach().fill_(float("nan") if tensor.is_floating_point() else 77)

    def replay(self):
        with torch.no_grad():
            for func, args, kwargs, old in self.calls:
                for mine, new in zip(tensors_in(old), tensors_in(func(*args, **kwargs))):
                    if mine.untyped_storage()._cdata != new.untyped_storage()._cdata:
                        mine.detach().copy_(new)


class TapedGraphs:
    """In the place of vitune._train.graphs.CudaGraphs."""

    made = 0

    def eagerly(self, run):
        return run()

    def capture(self, run):
        type(self).made += 1
        tape, chance = Tape(), torch.get_rng_state()
        try:
            with tape:
                result = run()
        finally:
            tape.undo()
            torch.set_rng_state(chance)
        return tape, result

    def wait(self):
        pass

    def bytes(self):
        return 1 << 20
