# python/vitune/_export/lower.py -- From a recorded pass to a file's nodes: what is a view, what is a constant, what every call writes.
# SPDX-License-Identifier: Apache-2.0
"""Views are read off the recording: a result that shares its storage with an argument is a view of that, whatever it was called. What
no input reaches is computed here, once, in fp32. All else is a call that writes a new tensor (calls.py)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from .._compile.patterns.match import module_of, value_of
from .._compile.patterns.mutations import written_by
from .._runtime.errors import Unsupported
from .graph import OPERANDS, View, dense, merged

TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.bool: "bool", torch.uint8: "u8"}
#: A view of a call: of a tensor that the model has or made, or nothing.
Operand = Optional[View]


class Refusal(NamedTuple):
    """A call that a model file cannot hold."""

    module: str  #: its path in the model
    call: str
    reason: str

    def __str__(self) -> str:
        return f"{self.module or 'the model'}: {self.call}: {self.reason}"


class Constants:
    """Tensors that the file holds: the model's own under their names, and those that were made of them."""

    def __init__(self, names: dict[int, str], instead: Optional[dict[str, Tensor]] = None) -> None:
        """names: by the id of a tensor of the model. instead: by name, what is taken in the place of a tensor of the model."""
        self._names, self._instead = names, instead or {}
        self.tensors: dict[str, Tensor] = {}  #: fp32 where they are of floating point
        self.unrounded: set[str] = set()  #: those that stay fp32 in a file
        self._by_storage: dict[int, str] = {}
        self._given: dict[str, Tensor] = {}  # by the name of their placeholder
        self._views: dict[Any, tuple[Tensor, View]] = {}  # by the id of a tensor, which is kept so that no other one gets it

    def given(self, tensor: Tensor, placeholder: str) -> Tensor:
        """A tensor of the model's as fp32 on the CPU: the same for the same placeholder of all batches."""
        if placeholder not in self._given:
            name = self._names.get(id(tensor))
            plain = self._instead.get(name, tensor).detach()
            plain = plain if tensor.is_meta else plain.cpu()  # a model without weights has no values
            plain = plain.float() if plain.is_floating_point() else plain
            if plain.untyped_storage().nbytes() != plain.numel() * plain.element_size():
                plain = plain.clone()  # a part of what other tensors are parts of too
            self._given[placeholder] = plain
            if name is not None and name not in self.tensors:
                self._by_storage.setdefault(plain.untyped_storage()._cdata, name)
                self.tensors[name] = plain
        return self._given[placeholder]

    def is_models(self, tensor: Tensor) -> bool:
        """Whether it lies where a parameter or buffer of the model does."""
        return any(tensor.untyped_storage()._cdata == given.untyped_storage()._cdata for given in self._given.values())

    def view(self, tensor: Tensor, key: Any = None) -> View:
        """Of a constant, which the file holds from now on. key: the same for the same one of all batches; None: the tensor itself is."""
        key = id(tensor) if key is None else key
        if key not in self._views:
            self._views[key] = tensor, self._view(tensor)
        return self._views[key][1]

    def exact(self, tensor: Tensor, key: Any) -> View:
        """Of a constant whose numbers the file does not round. key: as view() takes it."""
        view = self.view(tensor, key)
        self.unrounded.add(view.of)
        return view

    def _view(self, tensor: Tensor) -> View:
        if tensor.dtype not in TYPES:
            return self._whole_numbers(tensor)
        name = self._by_storage.get(tensor.untyped_storage()._cdata)
        whole = self.tensors.get(name)
        last = tensor.storage_offset() + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
        if whole is None or whole.dtype != tensor.dtype or not whole.is_contiguous() or whole.storage_offset() or last >= whole.numel():
            return self._made(tensor)
        return View(name, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))

    def _whole_numbers(self, tensor: Tensor) -> View:
        """Integers, which a file has as fp32 where that is exact."""
        wide = tensor if tensor.is_meta else tensor.float()
        if tensor.is_meta or tensor.is_complex() or not torch.equal(wide.double(), tensor.double()):
            raise Unsupported(f"a constant of type {str(tensor.dtype).removeprefix('torch.')} that fp32 does not hold")
        view = self._made(wide)
        self.unrounded.add(view.of)
        return view

    def _made(self, tensor: Tensor) -> View:
        """What is broadcast is held once."""
        held = tensor
        for dim, stride in enumerate(tensor.stride()):
            if stride == 0 and tensor.shape[dim] > 1:
                held = held.narrow(dim, 0, 1)
        held = held.contiguous()
        held = held.clone() if held.untyped_storage().nbytes() != held.numel() * held.element_size() else held
        name = f"vitune.c{sum(name.startswith('vitune.c') for name in self.tensors)}"
        self.tensors[name] = held
        self._by_storage[held.untyped_storage()._cdata] = name
        return View(name, 0, tuple(held.shape), dense(held.shape)).expanded(tensor.shape)


class Lowering:
    """Nodes of a file, of one recording."""

    def __init__(self, graph: fx.Graph, given: dict[fx.Node, Tensor], inputs: dict[fx.Node, str], constants: Constants,
                 folded: frozenset[str], computed: dict[str, Any]) -> None:
        """folded: names of the nodes that no input reaches and that are the same for all batches; computed: their values, as far as they
        are known already."""
        self.graph, self.constants = graph, constants
        self.nodes: list[dict[str, Any]] = []
        self.values: dict[str, tuple[str, tuple[int, ...]]] = {}  #: name -> type, shape
        self.refusals: list[Refusal] = []
        self._given, self._inputs, self._folded, self._known = given, inputs, folded, computed
        self._held: dict[fx.Node, Union[View, Tensor, tuple, list, None]] = {}
        self._stale: set[str] = set()
        self._changed: dict[int, Tensor] = {}  # constants that were changed in place, by their storages
        self._at = ""

    def run(self) -> None:
        from .calls import lower
        for node in self.graph.nodes:
            if node.op == "output":
                continue
            self._at = module_of(node)
            try:
                if node.op == "placeholder":
                    self._held[node] = self._placeholder(node)
                elif node.name in self._folded:
                    if node.name not in self._known:
                        self._known[node.name] = self._computed(node)
                    self._held[node] = self._known[node.name]
                elif not self._is_view(node):
                    lower(self, node)
            except Unsupported as reason:
                self._refuse(node, str(reason))

    # --- what calls are made of

    def view(self, node: Any) -> View:
        """Where the tensor of a node lies."""
        held = self._held[node]
        if isinstance(held, Tensor):
            return self.constants.view(self._current(held))
        if not isinstance(held, View):
            raise Unsupported("an argument is no tensor")
        if held.of in self._stale:
            raise Unsupported("a tensor that was changed in place is read as it was before")
        return held

    def constant(self, node: Any) -> Optional[Tensor]:
        """The value of a node that no input reaches."""
        held = self._held.get(node) if isinstance(node, fx.Node) else None
        return self._current(held) if isinstance(held, Tensor) else None

    def _current(self, held: Tensor) -> Tensor:
        if held.untyped_storage()._cdata in self._changed:
            raise Unsupported("a constant that was changed in place is read as it was before, or by another view of it")
        return held

    def new(self, node: fx.Node, place: Optional[int] = None) -> View:
        """A new tensor for the result of a node, or for one of several, that lies as it did."""
        value = value_of(node) if place is None else value_of(node)[place]
        view = self.scratch(value.dtype, tuple(value.shape), tuple(value.stride()))
        if place is None:
            self._held[node] = view
        else:
            self._held.setdefault(node, [None] * len(value_of(node)))[place] = view
        return view

    def scratch(self, dtype: torch.dtype, extents: Sequence[int], strides: Optional[Sequence[int]] = None) -> View:
        """A new tensor of that type. strides: as PyTorch says them; a tensor with gaps or overlaps is dense instead."""
        if dtype not in TYPES:
            raise Unsupported(f"a result of type {str(dtype).removeprefix('torch.')}")
        order = list(range(len(extents)))
        if strides is not None:
            order.sort(key=lambda dim: (-strides[dim], dim))
        shape = tuple(extents[dim] for dim in order)
        packed = dense(shape)
        name = f"t{len(self.values)}"
        self.values[name] = (TYPES[dtype], shape)
        return View(name, 0, tuple(extents), tuple(packed[order.index(dim)] for dim in range(len(extents))))

    def hold(self, node: fx.Node, held: Union[View, Tensor]) -> None:
        """The result of a node that is not new."""
        self._held[node] = held

    def emit(self, op: str, views: dict[str, Operand], **words: Any) -> None:
        """A node of the file, whose operands are views."""
        operands = {key: view for key, view in views.items() if view is not None}
        self.nodes.append({"op": op, "at": self._at, **{key: value for key, value in words.items() if value is not None}, **operands})

    def map(self, expression: str, operands: Sequence[View], out: View, by: Optional[str] = None, over: int = 0) -> None:
        """out[o] = by over r of expression(a[o, r] ...); operands have the extents of the result and then those reduced."""
        if len(operands) > len(OPERANDS):
            raise Unsupported(f"{len(operands)} operands: a file takes {len(OPERANDS)}")
        extents = operands[0].extents if operands else out.extents
        if by is None or by == "softmax":
            out, *operands = self._merged([out, *operands], over)
        elif len(extents) > 6:
            raise Unsupported(f"a reduction of {len(extents)} dimensions")
        words = {"by": by, "over": over} if by else {}
        self.emit("map", {**dict(zip(OPERANDS, operands)), "out": out}, x=expression, **words)

    def copied(self, source: View, out: View) -> None:
        self.map("a", [source.expanded(out.extents)], out)

    # --- what nodes are

    def _merged(self, views: list[View], over: int) -> list[View]:
        if len(views[0].extents) > 6 and over:
            raise Unsupported(f"a softmax of {len(views[0].extents)} dimensions")
        return merged(views)

    def _placeholder(self, node: fx.Node) -> Union[View, Tensor]:
        if node in self._inputs:
            value = value_of(node)
            return View(self._inputs[node], 0, tuple(value.shape), dense(value.shape))
        return self.constants.given(self._given[node], node.name)

    def _computed(self, node: fx.Node) -> Any:
        """In fp32 on the CPU. What is changed in place is a new tensor, and what it was before is not to be read again."""
        if is_factory(node):
            return _FACTORIES[_factory_name(node)](node, value_of(node))
        held = {taken: tree_map_only(Tensor, self._current, self._held[taken]) for taken in node.all_input_nodes}
        for taken in written_by(node):
            old = held[taken]
            if not isinstance(old, Tensor) or self.constants.is_models(old):
                raise Unsupported("it changes a parameter or buffer")
            held[taken] = old.clone()
            self._changed[old.untyped_storage()._cdata] = old
        args, kwargs = tree_map_only(fx.Node, lambda taken: held[taken], (node.args, node.kwargs))
        args, kwargs = tree_map(_on_cpu, (args, kwargs))
        if any(isinstance(leaf, Tensor) and leaf.is_meta for leaf in tree_leaves((args, kwargs))):
            args, kwargs = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
        before = torch.get_rng_state()
        with torch.no_grad():
            if node.op == "call_method":
                out = getattr(args[0], node.target)(*args[1:], **kwargs)
            else:
                out = node.target(*args, **kwargs)
        if kwargs.get("generator") is not None or not torch.equal(before, torch.get_rng_state()):
            raise Unsupported("random numbers, which are others in every pass")
        if out is None:  # setitem
            return args[0]
        return tree_map_only(Tensor, lambda made: made.float() if made.dtype in (torch.bfloat16, torch.float16) else made, out)

    def _is_view(self, node: fx.Node) -> bool:
        """Whether its result is a view of what is there; then that is held."""
        value = value_of(node)
        leaves = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
        if not leaves or written_by(node):
            return False
        source = next((taken for taken in node.all_input_nodes if isinstance(self._held.get(taken), (View, Tensor))
                       and isinstance(value_of(taken), Tensor)
                       and all(leaf.untyped_storage()._cdata == value_of(taken).untyped_storage()._cdata for leaf in leaves)), None)
        if source is None:
            return self._is_part(node)
        if any(leaf.dtype != value_of(source).dtype for leaf in leaves):
            raise Unsupported("a view as another type")
        held, base = self.view(source), value_of(source)
        if not _lies_as(held, base) and any(leaf.shape != base.shape or leaf.stride() != base.stride() for leaf in leaves):
            raise Unsupported("a view of a tensor with gaps or overlaps")
        made = [View(held.of, held.offset + leaf.storage_offset() - base.storage_offset(), tuple(leaf.shape), tuple(leaf.stride()))
                for leaf in leaves]
        self._held[node] = made[0] if isinstance(value, Tensor) else made
        return True

    def _is_part(self, node: fx.Node) -> bool:
        """Whether it is one of several results."""
        held = self._held.get(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
        if isinstance(held, (list, tuple)) and not isinstance(held, View) and len(node.args) == 2 and isinstance(node.args[1], int):
            self._held[node] = held[node.args[1]]
            return True
        return False

    def replaced(self, node: fx.Node, taken: fx.Node) -> View:
        """A new tensor for a tensor that a call changes in place; what it was before is not to be read again."""
        view = self.view(taken)
        if view.elements != _elements(self.values.get(view.of, ("", ()))[1]):
            raise Unsupported("a part of a tensor, or an input, is changed in place")
        self._stale.add(view.of)
        fresh = self.scratch(value_of(taken).dtype, view.extents, view.strides)
        self._held[node] = fresh
        return fresh

    def _refuse(self, node: fx.Node, reason: str) -> None:
        target = getattr(node.target, "__name__", node.target)
        shapes = [f"[{', '.join(map(str, value_of(taken).shape))}]" for taken in node.all_input_nodes
                  if isinstance(value_of(taken), Tensor)]
        self.refusals.append(Refusal(module_of(node), f"{target} of {' and '.join(shapes[:3])}", reason))
        value = value_of(node)  # what follows is looked at as if it were there
        parts = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
        made = []
        for part in parts:
            name = f"t{len(self.values)}"
            self.values[name] = ("fp32", tuple(part.shape))
            made.append(View(name, 0, tuple(part.shape), tuple(part.stride())))
        self._held[node] = made[0] if isinstance(value, Tensor) and made else made


def maybe(at: Lowering, tensor: Any) -> Optional[View]:
    """Where the tensor of a node lies that a call may do without."""
    return None if tensor is None else at.view(tensor)


#: Calls that take nothing of a tensor but its shape, type and device.
_FACTORIES = {
    **dict.fromkeys(("new_zeros", "zeros_like", "new_empty", "empty_like", "empty", "empty_strided"), lambda node, value: torch.zeros(value.shape, dtype=_wide(value))),
    **dict.fromkeys(("new_ones", "ones_like"), lambda node, value: torch.ones(value.shape, dtype=_wide(value))),
    **dict.fromkeys(("new_full", "full_like"), lambda node, value: torch.full(
        value.shape, node.kwargs.get("fill_value", node.args[-1]), dtype=_wide(value)))}


def _factory_name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def is_factory(node: fx.Node) -> bool:
    """Whether its values do not depend on those of the tensors that it is given."""
    return node.op in ("call_function", "call_method") and _factory_name(node) in _FACTORIES and isinstance(value_of(node), Tensor)


def _wide(value: Tensor) -> torch.dtype:
    return torch.float32 if value.dtype in (torch.bfloat16, torch.float16) else value.dtype


def _lies_as(view: View, value: Tensor) -> bool:
    return all(mine == theirs or extent == 1 for mine, theirs, extent in zip(view.strides, value.stride(), view.extents))


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _on_cpu(argument: Any) -> Any:
    if isinstance(argument, torch.device):
        return torch.device("cpu")
    return torch.float32 if argument in (torch.bfloat16, torch.float16) and isinstance(argument, torch.dtype) else argument
