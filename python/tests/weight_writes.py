# python/tests/weight_writes.py -- Ways in which programs write to a parameter: what a compiled model must have seen by its next call.
# SPDX-License-Identifier: Apache-2.0
"""A way is a function of a Target that makes `parameter` hold `new`, which differs in some of its elements. `sees`: whether PyTorch runs
the write in this process, so that it is known for certain; else it is found by comparing (the elements that were drawn, on a GPU)."""
import contextlib
import copy
import ctypes
import dataclasses
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.swa_utils import AveragedModel


class Target:
    """A model's parameter, and tensors over its memory that were there before it was compiled."""

    def __init__(self, model: nn.Module, module: nn.Module, name: str) -> None:
        self.model, self.module, self.name = model, module, name
        flat = self.parameter.detach().clone().flatten()
        self.parameter.data = flat.view(self.parameter.shape)
        self.flat = flat  # counts by itself
        self.alias = self.parameter.data  # the same

    @property
    def parameter(self) -> nn.Parameter:
        return getattr(self.module, self.name)

    def other(self, new: torch.Tensor) -> nn.Module:
        """The model with `new` in it."""
        other = copy.deepcopy(self.model)
        path = next(path for path, module in self.model.named_modules() if module is self.module)
        other.get_submodule(path).register_parameter(self.name, nn.Parameter(new.clone()))
        return other


@dataclasses.dataclass
class Way:
    write: Callable[[Target, torch.Tensor], None]
    sees: bool = True
    devices: tuple[str, ...] = ("cpu", "cuda")


def _data_add(target, new):
    target.parameter.data += new - target.parameter.data  # as peft's merge_adapter


def _kept_view(target, new):
    view = target.parameter.data.view(-1)
    view.copy_(new.flatten())


def _state(target, new):
    target.model.load_state_dict(target.other(new).state_dict())


def _state_assigned(target, new):
    target.model.load_state_dict(target.other(new).state_dict(), assign=True)


def _state_swapped(target, new):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        target.alias = target.flat = None  # it refuses what others hold
        target.model.load_state_dict(target.other(new).state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def _swap(target, new):
    torch.utils.swap_tensors(target.parameter, nn.Parameter(new.clone()))


def _averaged(target, new):
    """PyTorch's average of one model's parameters goes into those of the compiled one."""
    averaged = AveragedModel(target.model, avg_fn=None, multi_avg_fn=torch.optim.swa_utils.get_swa_multi_avg_fn())
    averaged.module = target.model
    averaged.n_averaged.fill_(0)
    averaged.update_parameters(target.other(new))


def _exponential(target, new):
    averages = torch.optim.swa_utils.get_ema_multi_avg_fn(0.0)
    averages(list(target.model.parameters()), list(target.other(new).parameters()), 1)


def _each_parameter(write):
    """Averages that are copied into a model: diffusers' EMAModel.copy_to, torch_ema's copy_to, timm's ModelEma."""
    def way(target, new):
        for mine, other in zip(target.model.parameters(), target.other(new).parameters()):
            write(mine, other)
    return way


def _state_values(target, new):
    """As timm's first ModelEma: by the values of a state."""
    other = target.other(new).state_dict()
    for name, value in target.model.state_dict().items():
        value.data.copy_(other[name])


def _vector(target, new):
    vector = nn.utils.parameters_to_vector(target.other(new).parameters())
    nn.utils.vector_to_parameters(vector, target.model.parameters())


class _Quiet(torch.optim.Optimizer):
    """As those of other packages, whose kernels write."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            parameter.data.sub_(parameter.grad)


def _step(make):
    def way(target, new):
        parameter = target.parameter
        parameter.grad = parameter.detach() - new
        optimizer = make([parameter])
        optimizer.step()
        parameter.grad = None
    return way


def _collective(write):
    def way(target, new):
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        write(target.parameter, new)
    return way


def _compiled_copy(target, new):
    def write(parameter, new):
        parameter.copy_(new)
    torch.compile(write, backend="aot_eager")(target.parameter, new)


def _inference(target, new):
    with torch.inference_mode():
        target.parameter.copy_(new)


def _preserved(target, new):
    with torch.autograd._unsafe_preserve_version_counter(target.parameter):
        target.parameter.copy_(new)


def _row_by_row(target, new):
    for row, other in zip(target.parameter.detach(), new):
        row.copy_(other)


def _fill_masked(target, new):
    changed = target.parameter != new
    target.parameter.detach()[changed] = new[changed]


def _new_parameter(target, new):
    setattr(target.module, target.name, nn.Parameter(new.clone()))


def _parameter_of_alias(target, new):
    """Another parameter over the same memory, which is written through the first."""
    first = target.parameter
    setattr(target.module, target.name, nn.Parameter(first.data))
    first.copy_(new)


def _to_and_fro(target, new):
    target.model.float()
    target.model.bfloat16()
    target.parameter.copy_(new)


# --- what PyTorch does not see


def _numpy(target, new):
    bits = target.parameter.detach().view(torch.int16).numpy()
    bits[...] = new.view(torch.int16).numpy()


def _dlpack(target, new):
    torch.utils.dlpack.from_dlpack(target.parameter.detach()).copy_(new)


def _storage(target, new):
    target.parameter.untyped_storage().copy_(new.contiguous().untyped_storage())


def _set(target, new):
    parameter = target.parameter
    over = torch.empty(0, dtype=new.dtype, device=new.device)
    over.set_(parameter.untyped_storage(), 0, parameter.shape, parameter.stride()).copy_(new)


def _memmove(target, new):
    new = new.contiguous()
    ctypes.memmove(target.parameter.data_ptr(), new.data_ptr(), new.numel() * new.element_size())


def _driver(target, new):
    """A copy by the driver, as any library makes it."""
    new = new.contiguous()
    cuda = ctypes.CDLL("libcuda.so.1")
    torch.cuda.synchronize()
    if cuda.cuMemcpyDtoD_v2(ctypes.c_uint64(target.parameter.data_ptr()), ctypes.c_uint64(new.data_ptr()),
                            ctypes.c_size_t(new.numel() * new.element_size())):
        raise RuntimeError("cuMemcpyDtoD failed")
    torch.cuda.synchronize()


def _graph_of_writes(target, new):
    """A captured copy, replayed."""
    graph = torch.cuda.CUDAGraph()
    old = target.parameter.detach().clone()
    with torch.cuda.graph(graph):
        target.parameter.copy_(new)
    target.parameter.copy_(old)
    target.after_capture()
    graph.replay()


WAYS = {
    "copy_": Way(lambda target, new: target.parameter.copy_(new)),
    "copy_ of a detached one": Way(lambda target, new: target.parameter.detach().copy_(new)),
    "copy_ of a view": Way(lambda target, new: target.parameter[:].copy_(new)),
    "rows of a view": Way(_row_by_row),
    "places of a view": Way(_fill_masked),
    "in inference mode": Way(_inference),
    "data.copy_": Way(lambda target, new: target.parameter.data.copy_(new)),
    "data +=, as peft merges": Way(_data_add),
    "data[...] =": Way(lambda target, new: target.parameter.data.__setitem__(..., new)),
    "data =": Way(lambda target, new: setattr(target.parameter, "data", new.clone())),
    "a view of data": Way(_kept_view),
    "data of a detached one": Way(lambda target, new: target.parameter.detach().data.copy_(new)),
    "data of data": Way(lambda target, new: target.parameter.data.data.copy_(new)),
    "an alias of before": Way(lambda target, new: target.alias.copy_(new)),
    "a flat buffer": Way(lambda target, new: target.flat.copy_(new.flatten())),
    "a part of a flat buffer": Way(lambda target, new: target.flat[:].data.copy_(new.flatten())),
    "set_": Way(lambda target, new: target.parameter.set_(new.clone())),
    "a new parameter": Way(_new_parameter),
    "a parameter over the same memory": Way(_parameter_of_alias),
    "to and fro": Way(_to_and_fro),
    "load_state_dict": Way(_state),
    "load_state_dict, assign": Way(_state_assigned),
    "load_state_dict, swap": Way(_state_swapped),
    "swap_tensors": Way(_swap),
    "data of a state's values": Way(_state_values),
    "foreach copy": Way(lambda target, new: torch._foreach_copy_([target.parameter], [new])),
    "foreach lerp": Way(lambda target, new: torch._foreach_lerp_([target.parameter], [new], 1.0)),
    "foreach lerp of a view": Way(lambda target, new: torch._foreach_lerp_([target.flat.view_as(new)], [new], 1.0)),
    "foreach sub": Way(lambda target, new: torch._foreach_sub_([target.parameter], [target.parameter.detach() - new])),
    "foreach operator": Way(lambda target, new: torch.ops.aten._foreach_lerp_.Scalar([target.parameter], [new], 1.0)),
    "AveragedModel": Way(_averaged),
    "exponential averages": Way(_exponential),
    "diffusers' copy_to": Way(_each_parameter(lambda mine, other: mine.data.copy_(other.to(mine.device).data))),
    "torch_ema's copy_to": Way(_each_parameter(lambda mine, other: mine.data.copy_(other.data))),
    "timm's ModelEma": Way(_each_parameter(lambda mine, other: mine.copy_(other))),
    "vector_to_parameters": Way(_vector),
    "an optimizer, for": Way(_step(lambda p: torch.optim.SGD(p, 1.0, foreach=False))),
    "an optimizer, foreach": Way(_step(lambda p: torch.optim.SGD(p, 1.0, foreach=True))),
    "an optimizer, fused": Way(_step(lambda p: torch.optim.AdamW(p, 0.5, weight_decay=0.0, fused=True))),
    "an optimizer of others": Way(_step(_Quiet)),
    "a compiled function": Way(_compiled_copy),
    "versions set back": Way(_preserved),
    "broadcast": Way(_collective(lambda p, new: (p.data.copy_(new), dist.broadcast(p, 0))), devices=("cpu",)),
    "all_reduce": Way(_collective(lambda p, new: _reduced(p, new)), devices=("cpu",)),
    "all_gather": Way(_collective(lambda p, new: dist.all_gather([p], new.contiguous())), devices=("cpu",)),
    "all_gather_into_tensor": Way(_collective(lambda p, new: dist.all_gather_into_tensor(p, new.contiguous())), devices=("cpu",)),
    "scatter": Way(_collective(lambda p, new: dist.scatter(p, [new.contiguous()])), devices=("cpu",)),
    "NumPy": Way(_numpy, sees=False, devices=("cpu",)),
    "memmove": Way(_memmove, sees=False, devices=("cpu",)),
    "DLPack": Way(_dlpack, sees=False),
    "a storage's copy_": Way(_storage, sees=False),
    "a tensor set to the storage": Way(_set, sees=False),
    "the driver": Way(_driver, sees=False, devices=("cuda",)),
    "a graph that writes": Way(_graph_of_writes, sees=False, devices=("cuda",)),
}


def _reduced(parameter, new):
    if not torch.equal(parameter, new):
        with torch.autograd._unsafe_preserve_version_counter(parameter):
            parameter.copy_(new)
    dist.all_reduce(parameter)


def patterns(old: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a weight [rows, columns] becomes."""
    shift = 4 * old.float().std().to(old.dtype)
    row, element, exchanged = old.clone(), old.clone(), old.clone()
    row[3] += shift
    element[5, 7] += 40 * shift
    exchanged[[2, 11]] = old[[11, 2]]
    return {"whole": old.flip(0) + shift, "a row": row, "an element": element, "two rows exchanged": exchanged}


@contextlib.contextmanager
def without_distribution():
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
