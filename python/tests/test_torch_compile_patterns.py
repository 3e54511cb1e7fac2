# python/tests/test_torch_compile_patterns.py -- Trees of calls, patterns of one's own in vitune.compile(), and what equal places share.
# SPDX-License-Identifier: Apache-2.0
import re
import unittest
from unittest import mock

import vitune

from .support import ROOT, needs_device, needs_torch, torch
from .test_torch_compile import CompileCase, vit, without_inductor

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch import fx, nn

from vitune._compile import backend
from vitune._compile.patterns import benchmark, distinct, every, subgraph
from vitune._compile.patterns.tree import Either, Steps, Tree, arguments_of, is_quiet, operation_of
from vitune._ops import attention as attention_ops

try:
    import timm
except ImportError:
    timm = None


def graph_of(function, *inputs):
    """The nodes that Dynamo has of a function: the last is its result."""
    found = []

    def compiler(module, given):
        found.append([node for node in module.graph.nodes if node.op.startswith("call_")])
        return module
    torch._dynamo.reset()
    torch.compile(function, backend=compiler, fullgraph=True, dynamic=False)(*inputs)
    return found[0]


@needs_torch
class TreeTest(unittest.TestCase):
    def test_a_call_is_the_same_however_it_is_written(self):
        x, y = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
        cases = {("reshape", (6, 4)): (lambda x, y: x.reshape(6, 4), lambda x, y: x.reshape((6, 4)), lambda x, y: torch.reshape(x, (6, 4)),
                                       lambda x, y: torch.reshape(x, shape=[6, 4])),
                 ("permute", (0, 2, 1)): (lambda x, y: x.permute(0, 2, 1), lambda x, y: torch.permute(x, (0, 2, 1)),
                                          lambda x, y: x.permute(dims=(0, 2, 1))),
                 ("view", (24,)): (lambda x, y: x.view(24), lambda x, y: x.view([24])),
                 ("transpose", 1, 2): (lambda x, y: x.transpose(1, 2), lambda x, y: torch.transpose(x, dim0=1, dim1=2)),
                 ("flatten", 1, -1): (lambda x, y: x.flatten(1), lambda x, y: torch.flatten(x, start_dim=1)),
                 ("roll", (1, 2), (1, 2)): (lambda x, y: torch.roll(x, (1, 2), (1, 2)), lambda x, y: x.roll(shifts=(1, 2), dims=(1, 2))),
                 ("relu", False): (lambda x, y: F.relu(x), lambda x, y: torch.relu(x), lambda x, y: x.relu())}
        for wanted, functions in cases.items():
            for function in functions:
                with self.subTest(wanted):
                    node, = graph_of(function, x, y)
                    found = list(arguments_of(node).values())
                    self.assertEqual((operation_of(node), *found[1:]), wanted)
                    self.assertIsInstance(found[0], fx.Node)

    def test_arguments_that_an_operation_does_not_have_are_refused(self):
        node = fx.Graph().call_function(F.gelu, (1.0, "none", "more"))
        with self.assertRaisesRegex(vitune.Unsupported, "arguments that are not known"):
            arguments_of(node)
        self.assertIsNone(Tree("gelu").find(node))

    def test_a_tree_binds_what_it_names_and_products_fit_either_way_round(self):
        tree = Tree("mul", input="x", other=Tree("sigmoid", input=Tree("mul", input="x", other=1.702)))
        x, y = torch.randn(3), torch.randn(3)
        for function, fits in ((lambda x, y: x * torch.sigmoid(1.702 * x), True), (lambda x, y: (x * 1.702).sigmoid() * x, True),
                               (lambda x, y: torch.mul(torch.sigmoid(torch.mul(x, other=1.702)), x), True),
                               (lambda x, y: y * torch.sigmoid(1.702 * x), False), (lambda x, y: x * torch.sigmoid(1.7 * x), False),
                               (lambda x, y: x * torch.sigmoid(1.702 + x), False)):
            nodes = graph_of(function, x, y)
            found = tree.find(nodes[-1])
            self.assertEqual(found is not None, fits)
            if fits:
                self.assertEqual((found["x"].op, found.nodes, found.root, found.is_whole), ("placeholder", nodes, nodes[-1], True))

    def test_a_tree_is_whole_where_nothing_else_uses_its_steps(self):
        nodes = graph_of(lambda x: torch.sigmoid(x) * 2.0, torch.randn(3))
        self.assertTrue(Tree("mul", input=Tree("sigmoid"), other=2.0).find(nodes[-1]).is_whole)

        def twice(x):
            y = torch.sigmoid(x)
            return y * 2.0, y
        nodes = graph_of(twice, torch.randn(3))
        self.assertFalse(Tree("mul", input=Tree("sigmoid"), other=2.0).find(nodes[-1]).is_whole)

    def test_steps_are_as_many_as_there_are_and_none_too(self):
        scaled = Tree("mul", input="x", other="by").where(lambda found: isinstance(found["by"], float))
        tree = Steps(Either(scaled, Tree("relu", input="x")), Tree("sigmoid", input="start").named("first"), "x", "every")
        for function, factors in ((lambda x, y: torch.sigmoid(x), []), (lambda x, y: 3.0 * (torch.sigmoid(x) * 2.0).relu(), [3.0, None, 2.0]),
                                  (lambda x, y: torch.sigmoid(x) * y, None), (lambda x, y: x.relu(), None),
                                  (lambda x, y: torch.sigmoid(x).exp() * 2.0, None)):
            nodes = graph_of(function, torch.randn(3), torch.randn(3))
            found = tree.find(nodes[-1])
            self.assertEqual(None if found is None else [step.get("by") for step in found["every"]], factors)
            if found is not None:
                self.assertEqual((found.nodes, found["first"], found["start"].op), (nodes, nodes[0], "placeholder"))

    def test_sums_of_sums_are_looked_at_once(self):
        asked = []

        def doubled(x):
            x = x.exp()
            for _ in range(40):
                x = x + x
            return x
        steps = Steps(Tree("add", input="x", other="y").where(lambda found: not asked.append(found)), Tree("sigmoid"), "x")
        self.assertIsNone(steps.find(graph_of(doubled, torch.randn(3))[-1]))
        self.assertEqual(len(asked), 80)

    def test_what_is_around_a_node_is_found_the_largest_first(self):
        tree = Tree("add", input=Steps(Tree("relu mul"), "start"), other=1.0)
        for function, sizes in ((lambda x: ((x.sigmoid().relu() * 2.0 + 1.0).exp()), [3]), (lambda x: (x.sigmoid().relu() * 2.0).exp(), []),
                                (lambda x: (x.sigmoid() + 1.0).relu() + 1.0, [1]), (lambda x: (lambda y: (y + 1.0, y.exp()))(x.sigmoid().relu()), [])):
            nodes = graph_of(function, torch.randn(3))
            self.assertEqual([len(found.nodes) for found in tree.around("start", nodes[0])], sizes)
        nodes = graph_of(lambda x: x.sigmoid().relu() * 2.0, torch.randn(3))
        self.assertEqual([found.nodes for found in Steps(Tree("relu mul"), "start").around("start", nodes[0])], [nodes[1:], nodes[1:2], []])

    def test_steps_that_do_nothing_are_known_and_others_are_not(self):
        x = torch.randn(4, 6)
        cases = ((lambda x: F.dropout(x, 0.5, False), True), (lambda x: F.dropout(x, 0.0), True), (lambda x: F.dropout(x, 0.5), False),
                 (lambda x: x.contiguous(), True), (lambda x: x.detach(), True), (lambda x: x.relu(), False))
        for number, (function, is_known) in enumerate(cases):
            for given_x, quiet in ((x, is_known), (x.t(), is_known and number != 3), (x.clone().requires_grad_(), is_known and number < 3)):
                nodes = graph_of(function, given_x)
                self.assertEqual(bool(nodes) and is_quiet(nodes[-1]), quiet and bool(nodes), (number, nodes))


@needs_torch
class DistinctTest(unittest.TestCase):
    def test_places_are_of_one_kind_where_types_sizes_strides_and_wiring_are(self):
        def kinds(function, *inputs):
            return [distinct.kind_of((node.args, node)) for node in graph_of(function, *inputs) if node.target in (torch.add, F.linear)]
        x, weight = torch.randn(4, 4), nn.Parameter(torch.randn(4, 4), False)
        same = kinds(lambda a, b, c, d: (torch.add(a, b), torch.add(c, d)), x, x.clone(), x.clone(), x.clone())
        self.assertEqual(same[0], same[1])
        self.assertNotEqual(distinct.kind_of(0.0), distinct.kind_of(-0.0))
        for name, (function, *inputs) in {
                "one tensor twice": (lambda a, b, c: (torch.add(a, b), torch.add(a, a)), x, x.clone(), x.clone()),
                "strides": (lambda a, b, c: (torch.add(a, b), torch.add(a, c)), x, x.clone(), x.clone().t()),
                "types": (lambda a, b, c: (torch.add(a, b), torch.add(a, c)), x, x.clone(), x.bfloat16()),
                "a gradient": (lambda a, b, c: (torch.add(a, b), torch.add(a, c)), x, x.clone(), x.clone().requires_grad_()),
                "a parameter": (lambda a, b, c: (F.linear(a, b), F.linear(a, c)), x, x.clone(), weight),
                "who else reads it": (lambda a, b, c: (torch.add(a, b), *(lambda total: (total, total.relu()))(torch.add(a, b))), x, x.clone(), x),
                "numbers": (lambda a, b, c: (torch.add(a, b, alpha=1), torch.add(a, 1.0)), x, x.clone(), x.clone())}.items():
            with self.subTest(name):
                first, second = kinds(function, *inputs)
                self.assertNotEqual(first, second)

    def test_what_was_found_out_is_forgotten_with_the_graph_and_errors_are_told_to_all(self):
        made = []

        def make():
            made.append(1)
            raise vitune.Unsupported("no kernel")
        for _ in range(2):
            with distinct.of_one_graph():
                for _ in range(3):
                    with self.assertRaisesRegex(vitune.Unsupported, "no kernel"):
                        distinct.once(make, "place", 1)
        self.assertEqual(len(made), 2)
        self.assertEqual([distinct.once(lambda: 1, "place"), distinct.once(lambda: 2, "place")], [1, 2])  # outside: no graph

    def test_alike_values_have_memory_of_their_own(self):
        value = torch.empty_strided((2, 3), (1, 2), dtype=torch.bfloat16)
        one, two = distinct.alike((value, 7)), distinct.alike((value, 7))
        self.assertEqual((one[0].stride(), one[0].dtype, one[1]), ((1, 2), torch.bfloat16, 7))
        self.assertEqual(len({each.data_ptr() for each in (value, one[0], two[0])}), 3)


@needs_device
@needs_torch
@unittest.skipIf(timm is None, "timm is not installed")
class EqualBlocksTest(CompileCase):
    def test_blocks_that_are_equal_ask_once_however_many_there_are(self):
        asked = {}
        for depth in (2, 5):
            texts = []

            def query(desc, texts=texts):
                texts.append(desc.text if isinstance(desc, vitune.Problem) else desc.text())
                return self.tuned.query(desc)
            counting = mock.Mock(wraps=self.tuned, query=query, _forward=self.tuned._forward, _handle=self.tuned._handle)
            model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=depth).eval().bfloat16()
            torch._dynamo.reset()
            with torch.inference_mode(), mock.patch.object(attention_ops, "context_of", lambda device, one=counting: one):
                _, report = self.compiled(model, torch.randn(2, 3, 32, 32, dtype=torch.bfloat16))
            self.assertEqual(sum(call.operator == "attention" and call.replaced for call in report.calls), depth)
            asked[depth] = texts
        self.assertEqual((len(asked[2]), len(set(asked[2]))), (len(asked[5]), len(set(asked[5]))))
        self.assertIn("attention bf16 b=2 h=3 nq=5 nk=5 d=64 layout=packed", asked[5])

    def test_results_of_equal_calls_are_tensors_of_their_own_to_the_compiler(self):
        seen = []

        def inductor(module, inputs, config_patches=None):
            seen.extend(node.meta["example_value"] for node in module.graph.nodes if node.target is torch.ops.vitune.attention.default)
            return without_inductor(module, inputs)
        with torch.inference_mode(), mock.patch.object(backend, "compile_fx", inductor):
            self.compiled(vit().bfloat16(), torch.randn(2, 3, 32, 32, dtype=torch.bfloat16))
        self.assertEqual(len({value.untyped_storage()._cdata for value in seen}), 2)
        self.assertEqual(len({(value.shape, value.stride(), value.dtype) for value in seen}), 1)


class WrittenOut(nn.Module):
    def __init__(self, eps=2.0 ** -23):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.randn(32)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


@needs_device
@needs_torch
class OwnPatternTest(CompileCase):
    def setUp(self):
        super().setUp()  # which restores the list of patterns
        text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
        code = next(block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "@register" in block)
        exec(compile(code, "docs/python.md", "exec"), {})

    def only_call(self, model, x, **keywords):
        torch._dynamo.reset()
        with torch.no_grad():
            got, report = self.compiled(model, x, **keywords)
            self.expect_close(got, model(x))
        call, = [call for call in report.calls if call.operator == "written_out_norm"]
        return call

    def test_the_example_in_the_docs_is_served_by_vitunes_norm(self):
        call = self.only_call(WrittenOut().bfloat16(), torch.randn(6, 32).bfloat16(), replace=["written_out_norm"])
        self.assertEqual((call.call, call.replaced, call.selection.outcome, call.selection.problem), (
            "written_out_norm", True, "exact", "norm bf16 m=6 d=32 rms weight eps=1.1920928955078125e-07"))

    def test_it_is_put_in_where_it_was_timed_and_is_faster(self):
        for us, replaced in ((5.0, True), (20.0, False)):
            def race(ours, theirs, device, us=us):
                torch.testing.assert_close(ours()[0], theirs()[0], atol=0.1, rtol=0.1)
                return benchmark.Times(us, 10.0)
            with mock.patch.object(benchmark, "can_race", lambda device: True), mock.patch.object(benchmark, "race", race), \
                    mock.patch.object(backend, "_times", {}), mock.patch.object(subgraph, "compile_fx", without_inductor):
                call = self.only_call(WrittenOut().bfloat16(), torch.randn(6, 32).bfloat16())
            self.assertEqual((call.replaced, call.times.ours_us), (replaced, us))

    def test_what_the_operator_cannot_stand_for_is_left(self):
        class Kept(WrittenOut):
            def forward(self, x):
                scaled = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
                return self.weight * scaled + scaled
        x = torch.randn(6, 32).bfloat16()
        for model, reason, context in ((Kept().bfloat16(), "used elsewhere", self.tuned), (WrittenOut(), "the operator gives torch.bfloat16",
                                                                                           self.tuned),
                                       (WrittenOut().bfloat16(), "never tuned", self.untuned)):
            self.context = context
            call = self.only_call(model, x, replace=["written_out_norm"])
            self.assertFalse(call.replaced)
            self.assertIn(reason, call.reason)

    def test_a_name_that_is_taken_is_refused(self):
        class Again(type(every.PATTERNS[0])):
            name = "linear"
        for pattern in (Again, Again(), every.PATTERNS[0]):
            with self.assertRaisesRegex(vitune.InvalidArgument, "choose another"):
                vitune.patterns.register(pattern)


if __name__ == "__main__":
    unittest.main()
