# python/vitune/_compile/watch.py -- Whether memory of parameters was written, by anything that PyTorch runs in this process.
# SPDX-License-Identifier: Apache-2.0
"""PyTorch counts writes by the tensor that they go through, and tensors over the same memory need not share a counter: `p.data` begins
one of its own, and a flat buffer that parameters are assigned from keeps its own. So what is watched is a *storage*, by the counters of
all tensors that are known to lie in it: each is held by an empty tensor that shares the counter and not the memory. `Tensor.data` tells
of new ones, and the garbage collector of those that were there before.

Operators that count nothing are told apart by the dispatcher: lists of tensors (`torch._foreach_lerp_`, fused optimizers), collectives
and FSDP's copies have no kernel of PyTorch's for the key ADInplaceOrView, where versions are counted, and get one here that looks for
watched storages among their arguments, as `torch.library.custom_op` counts versions. Steps of optimizers are looked at besides.

Nothing here holds memory or refers weakly to a parameter, since `torch.utils.swap_tensors` refuses what is referred to weakly.
"""
from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional

import torch
from torch import Tensor
from torch._dynamo import trace_rules
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_leaves

_MANY_COUNTERS, _MOST_COUNTERS = 64, 4096  #: of one storage: some may go then; too many to look at
_PLAIN = (Tensor, torch.nn.Parameter)
_is_freed = torch.UntypedStorage._expired


def _key_of(tensor: Tensor) -> Optional[int]:
    """The storage's identity; None where the tensor has none of its own (a subclass that wraps others, a sparse tensor)."""
    if isinstance(tensor, FakeTensor):
        return None
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None


def _counter_of(tensor: Tensor) -> Tensor:
    """An empty tensor that counts what is written through `tensor` and its views."""
    with torch.inference_mode(False), torch.no_grad():
        counter = tensor.detach()
        counter.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return counter


def _tensors_in(key: int) -> int:
    """How many tensors lie in a storage, at most: its object in Python, which stays once it was asked for, is held as tensors hold it."""
    return torch._C._storage_Use_Count(key) - _held_by_objects()


@functools.cache
def _held_by_objects() -> int:
    tensor = torch.empty(1)
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) - 1


class _Memory:
    """One storage."""

    def __init__(self, tensor: Tensor) -> None:
        self.storage = StorageWeakRef(tensor.untyped_storage())  # while this is held, no other has the same key
        self.counters: dict[Any, Tensor] = {}
        self.is_lost = False  #: so many counters that nobody looks at them: it may have been written at any time
        self._uncounted = 0

    @property
    def writes(self) -> int:
        """Rises with each write that is known of, and never falls."""
        self._uncounted += self.is_lost
        return self._uncounted + sum([counter._version for counter in self.counters.values()])

    def add(self, tensor: Tensor, name: Any) -> None:
        """A tensor that lies in it, named by its identity."""
        if name not in self.counters and not tensor.is_inference():
            self._add(_counter_of(tensor), name)

    def add_new(self, alias: Tensor) -> None:
        """A tensor that nobody has yet but the caller."""
        # Where the parameter and this one alone lie there, other counters count nothing any more.
        if len(self.counters) >= _MANY_COUNTERS and _tensors_in(self.storage.cdata) == 2:
            self._uncounted += sum(counter._version for counter in self.counters.values())
            self.counters = {name: counter for name, counter in self.counters.items() if isinstance(name, int)}
            self._uncounted -= sum(counter._version for counter in self.counters.values())
        self.is_lost |= len(self.counters) >= _MOST_COUNTERS
        if not self.is_lost:
            self._add(_counter_of(alias), object())

    def _add(self, counter: Tensor, name: Any) -> None:
        self._uncounted -= counter._version  # what it counted before is no write of now
        self.counters[name] = counter

    def note_write(self) -> None:
        self._uncounted += 1


class _Watch:
    """All storages of which something is kept."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.changes = 0  #: of the counters to be looked at, and writes that none counted
        self._memories: dict[int, _Memory] = {}
        self._operators: Optional[_Operators] = None

    def memories_of(self, parameters: Sequence[Tensor]) -> list[_Memory]:
        with self.lock:
            if self._operators is None:
                _hand_out_data()
                _tell_of_preserved_versions()
                register_optimizer_step_post_hook(self._after_step)
                self._operators = _Operators()
            self._operators.find()
            self._drop_freed()
            found, shared = [], {}
            for parameter in parameters:
                key = parameter.untyped_storage()._cdata
                memory = self._memories.get(key)
                if memory is None:
                    memory = self._memories[key] = _Memory(parameter)
                    if _tensors_in(key) > 1:
                        shared[key] = memory
                memory.add(parameter, id(parameter))
                found.append(memory)
            _add_others(shared)
            return found

    def writes_of(self, storages: Iterable[StorageWeakRef]) -> list[int]:
        """Of watched storages."""
        with self.lock:
            return [self._memories[storage.cdata].writes for storage in storages]

    def _drop_freed(self) -> None:
        for key in [key for key, memory in self._memories.items() if memory.storage.expired()]:
            del self._memories[key]

    def add_alias(self, tensor: Tensor) -> None:
        """A tensor with a counter of its own was made, perhaps in a watched storage."""
        memory = self._memories.get(_key_of(tensor)) if self._memories else None
        if memory is not None:
            with self.lock:
                memory.add_new(tensor)
                self.changes += 1

    def note_writes(self, tensors: Iterable[Any]) -> None:
        """These were written, and nothing counted it."""
        if not self._memories:
            return
        for tensor in tensors:
            memory = self._memories.get(_key_of(tensor)) if isinstance(tensor, Tensor) else None
            if memory is not None:
                with self.lock:
                    memory.note_write()
                    self.changes += 1

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.note_writes(parameter for group in optimizer.param_groups for parameter in group["params"])


def _add_others(shared: dict[int, _Memory]) -> None:
    """The tensors that lie in these storages already."""
    if not shared:
        return
    for each in gc.get_objects():
        if type(each) in _PLAIN:
            memory = shared.get(_key_of(each))
            if memory is not None:
                memory.add(each, id(each))


def _hand_out_data() -> None:
    """Makes Tensor.data tell of the tensors that it gives."""
    theirs = torch.Tensor.data

    def data(self: Tensor) -> Tensor:
        alias = theirs.__get__(self)
        watch.add_alias(alias)
        return alias

    def set_data(self: Tensor, new: Tensor) -> None:
        theirs.__set__(self, new)
    trace_rules.add(__name__)  # of `data` Dynamo would make `self.data`, which calls it again
    torch.Tensor.data = property(data, set_data, theirs.__delete__, theirs.__doc__)


def _tell_of_preserved_versions() -> None:
    """PyTorch's own way to hide writes (FSDP's, offloading), whose versions are set back afterwards."""
    hidden = torch.autograd._unsafe_preserve_version_counter
    theirs = hidden.__exit__

    def leave(self: Any, *args: Any) -> Any:
        try:
            return theirs(self, *args)
        finally:
            watch.note_writes(self.tensors)
    hidden.__exit__ = leave


class _Operators:
    """Kernels that look at what operators write that count nothing up."""

    _NAMESPACES = ("aten", "c10d", "_c10d_functional", "fsdp")

    def __init__(self) -> None:
        self._libraries: dict[str, torch.library.Library] = {}
        self._known: set[str] = set()

    def find(self) -> None:
        """Those that are registered by now: torch.distributed's are when it is imported."""
        names = torch._C._dispatch_get_all_op_names()
        for name in names if len(names) != len(self._known) else ():
            if name not in self._known:
                self._known.add(name)
                if name.partition("::")[0] in self._NAMESPACES:
                    self._count(name)

    def _count(self, name: str) -> None:
        counts = torch._C._dispatch_has_kernel_for_dispatch_key(name, "ADInplaceOrView")
        places = () if counts else _written(name)
        if not places:
            return
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        try:
            operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
        except (AttributeError, RuntimeError):
            return  # of TorchScript's own
        library = self._libraries.get(namespace)
        if library is None:
            library = self._libraries[namespace] = torch.library.Library(namespace, "IMPL")  # noqa: TOR901  (kept for good)
        library.impl(rest, functools.partial(_call, operator, places), "ADInplaceOrView", with_keyset=True)


def _written(name: str) -> list[tuple[int, str]]:
    """Place and name of the arguments that an operator writes, where no version may be counted for it: lists of tensors; all tensors of
    collectives, whose schemas say nothing."""
    schema = torch._C._get_schema(*name.partition(".")[::2])
    collective = name.startswith("c10d::")
    return [(place, argument.name) for place, argument in enumerate(schema.arguments)
            if "Tensor" in str(argument.type) and (collective or argument.alias_info is not None and argument.alias_info.is_write)]


def _call(operator: Any, places: Sequence[tuple[int, str]], keys: Any, *args: Any, **kwargs: Any) -> Any:
    with torch._C._AutoDispatchBelowADInplaceOrView():
        result = operator.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *args, **kwargs)
    watch.note_writes(_given(places, args, kwargs))
    return result


def _given(places: Sequence[tuple[int, str]], args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[Any]:
    for place, name in places:
        yield from tree_leaves(args[place] if place < len(args) else kwargs.get(name))


watch = _Watch()


class Stamp:
    """The content of some parameters at one moment."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._memories = watch.memories_of(parameters)
        self._changes = watch.changes
        self._writes = [memory.writes for memory in self._memories]
        self._look_at_counters(parameters)
        self._addresses = [parameter.data_ptr() for parameter in parameters]
        self._strides = [parameter.stride() for parameter in parameters]

    def _look_at_counters(self, parameters: Sequence[Tensor]) -> None:
        self._versions = [parameter._version for parameter in parameters]
        own = {id(parameter) for parameter in parameters}
        self._counters = [counter for memory in {id(each): each for each in self._memories}.values()
                          for name, counter in memory.counters.items() if name not in own]
        self._counted = [counter._version for counter in self._counters]
        self._is_lost = any(memory.is_lost for memory in self._memories)

    def fits(self, parameters: Sequence[Tensor]) -> bool:
        """Whether these have the same content. At every call: some tens of microseconds for a hundred parameters."""
        if self._changes != watch.changes and not self._fits_changed(parameters) or self._is_lost:
            return False
        return ([parameter._version for parameter in parameters] == self._versions
                and [counter._version for counter in self._counters] == self._counted
                and [parameter.data_ptr() for parameter in parameters] == self._addresses
                and [parameter.stride() for parameter in parameters] == self._strides
                and not any([_is_freed(memory.storage.cdata) for memory in self._memories]))

    def _fits_changed(self, parameters: Sequence[Tensor]) -> bool:
        """The same where there are other counters now, or something was written somewhere."""
        with watch.lock:
            if [memory.writes for memory in self._memories] != self._writes:
                return False
            self._changes = watch.changes
            self._look_at_counters(parameters)
        return True

    def is_alive(self) -> bool:
        return not any(memory.storage.expired() for memory in self._memories)
