# python/tests/torch_staged.py -- Launches on the emulated device of what PyTorch holds on the CPU.
# SPDX-License-Identifier: Apache-2.0
"""launch_staged() copies the tensors' memory to the device, launches there what the package planned, and copies the output
back. The operators take tensors of the CPU once this is imported.
"""
import torch
import torch.nn.functional as F

import vitune
from vitune._ops import attention as attention_ops

from .support import DEVICE, OPERATORS


if OPERATORS is None:
    @attention_ops.attention_op.register_kernel("cpu")
    def _(*arguments):
        return attention_ops.attention_op._init_fn(*arguments)

    @attention_ops.attention_lse_op.register_kernel("cpu")
    def _(*arguments):
        return attention_ops.attention_lse_op._init_fn(*arguments)


def storage_of(tensor):
    """A tensor's whole memory, as bytes that share it."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def launch_staged(plan, q, k, v, mask, out, lse):
    """What attention_ops.launch() does, with tensors of the CPU."""
    staged, pointers = {}, []
    for tensor in (q, k, v, mask, out, lse):
        if tensor is None:
            pointers.append(None)
            continue
        place = tensor.untyped_storage().data_ptr()
        if place not in staged:
            staged[place] = DEVICE.upload(storage_of(tensor).numpy().tobytes())
        pointers.append(staged[place] + tensor.data_ptr() - place)
    attention_ops.launch_pointers(attention_ops.context_of(0), plan, tuple(pointers), 0)
    for tensor in (out, lse):
        if tensor is not None:
            bytes_ = storage_of(tensor)
            data = DEVICE.download(staged[bytes_.data_ptr()], bytes_.numel())
            bytes_.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))


def eager_and_compiled():
    """A function of q, k and v that attends, as it is and compiled; nothing is counted before each."""
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)
    for call in (attend, torch.compile(attend, fullgraph=True, backend="aot_eager")):
        torch._dynamo.reset()
        vitune.torch.reset_stats()
        yield call
