# cmake/forward_graph.py -- A forward pass as a graph of PyTorch's calls, as Dynamo would write it; no GPU, no weights.
#
# Recorded while a model runs on the meta device: under a second for what Dynamo takes several. What patterns of vitune.compile() read is
# there: functions and methods by the names that Dynamo gives them, results under "example_value", inputs and parameters as
# placeholders. tests/catalogue/test_make_timm_calls.py compares it with Dynamo's, python/tests/test_torch_compile_windows.py what is
# found in whole models.
# SPDX-License-Identifier: Apache-2.0
import operator

import torch
import torch.nn.functional as F
from torch import fx
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

_METHODS = {getattr(torch.Tensor, name): name for name in dir(torch.Tensor)
            if not name.startswith("__") and callable(getattr(torch.Tensor, name))}
#: Tensor's operators, which Dynamo writes as Python's. PyTorch calls some of them by the method's name.
_OPERATORS = {getattr(torch.Tensor, name): target for names, target in (
    (("__getitem__",), operator.getitem), (("__add__", "__radd__", "add"), operator.add), (("__iadd__", "add_"), operator.iadd),
    (("__mul__", "__rmul__", "mul"), operator.mul), (("__imul__", "mul_"), operator.imul),
    (("__matmul__", "matmul"), operator.matmul), (("__setitem__",), operator.setitem)) for name in names}


class ForwardGraph(TorchFunctionMode):
    """Records what is called inside of it."""

    def __init__(self):
        super().__init__()
        self.graph = fx.Graph()
        self._last_given = None  # the calls come behind it
        self._nodes = {}  # by the id of a tensor
        self._kept = []  # so that no other tensor gets the id

    def __torch_function__(self, function, types, positional=(), named=None):
        out = function(*positional, **(named or {}))
        if isinstance(out, torch.Tensor) or isinstance(out, (list, tuple)) and any(isinstance(part, torch.Tensor) for part in out):
            args, kwargs = tree_map_only(torch.Tensor, self._node, (tuple(positional), dict(named or {})))
            if function in _METHODS and function not in _OPERATORS:
                node = self.graph.call_method(_METHODS[function], args, kwargs)
            else:
                node = self.graph.call_function(_OPERATORS.get(function, function), args, kwargs)
            self._note(out, node)
            if function is F.dropout and out is positional[0]:
                # With fake tensors it is a copy that lies row after row, if it drops nothing too.
                node.meta["example_value"] = torch.empty(out.shape, dtype=out.dtype, device=out.device)
        return out

    def finished(self, out):
        """The graph, whose result is `out`: a tensor, or a tuple, list or dict with tensors in it."""
        self.graph.output(tree_map_only(torch.Tensor, self._node, out))
        return self.graph

    def _node(self, tensor):
        if id(tensor) not in self._nodes:
            with self.graph.inserting_after(self._last_given):  # None: at the beginning
                self._last_given = self.graph.placeholder(f"given_{len(self._kept)}")
            self._note(tensor, self._last_given)
        return self._nodes[id(tensor)]

    def _note(self, value, node):
        node.meta["example_value"] = value
        self._kept.append(value)
        if isinstance(value, torch.Tensor):
            self._nodes[id(value)] = node
            return
        for place, part in enumerate(value):
            if isinstance(part, torch.Tensor):
                self._note(part, self.graph.call_function(operator.getitem, (node, place)))
