# python/tests/test_torch_compile_effects.py -- vitune.compile() and programs that write to tensors, or that look at how they lie.
# SPDX-License-Identifier: Apache-2.0
"""A call of ours reads everything at one place, and its result may have other strides than PyTorch's: neither may be seen. Here
each program is one that could; what is asked is its answers, and that the same program without the write is replaced."""
import copy
import io
import unittest
from unittest import mock

import vitune

from .support import torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch import nn

from vitune._compile.patterns import attention as attention_pattern
from vitune._compile.patterns.mutations import storages_of, storages_written_by

from .test_torch_compile import CompileCase, served_by_nearest, without_inductor
from .test_torch_compile_windows import Block, CompileWindowsCase
from .torch_cases import packed


def written(call, *inputs):
    """The names of the inputs that a graph is known to write to."""
    graphs = []

    def keep(module, _):
        graphs.append(module.graph)
        return module
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(call, backend=keep, fullgraph=True)(*inputs)
    (graph,) = graphs
    storages = set().union(*map(storages_written_by, graph.nodes))
    given = [node for node in graph.find_nodes(op="placeholder") if not storages.isdisjoint(storages_of(node))]
    return sorted(node.name.removeprefix("l_").removesuffix("_") for node in given)


class WrittenByTest(unittest.TestCase):
    """Every way that Dynamo's graphs have to change a tensor."""

    def test_operators_methods_and_functions_that_change_an_argument(self):
        def power(x, y):
            x **= y
            return x

        def floor(x, y):
            x //= y
            return x

        def rest(x, y):
            x %= y
            return x

        def item(x, y):
            x[0] = y[1]
            return x
        cases = [power, floor, rest, item, lambda x, y: x.add_(y), lambda x, y: x.view(-1).relu_(), lambda x, y: F.relu(x, inplace=True) + y,
                 lambda x, y: F.relu(input=x, inplace=True) + y, lambda x, y: F.relu_(x) + y, lambda x, y: torch.add(y, 1, out=x) + 1,
                 lambda x, y: x.unbind(0)[1].mul_(2) + y, lambda x, y: torch.ops.aten.mul_.Tensor(x, y),
                 lambda x, y: torch._foreach_add_([x], 1) or y + x, lambda x, y: x.copy_(y), lambda x, y: torch.nn.init.zeros_(x) + y]
        for call in cases:
            with self.subTest(call.__name__ if call.__name__ != "<lambda>" else call.__code__.co_names):
                self.assertEqual(written(call, torch.rand(3, 4) + 1, torch.rand(3, 4) + 1), ["x"])

    def test_operators_on_integers(self):
        def bits(x, y):
            x |= y
            return x

        def other_bits(x, y):
            x ^= y
            return x

        def all_bits(x, y):
            x &= y
            return x

        def left(x, y):
            x <<= y
            return x

        def right(x, y):
            x >>= y
            return x
        for call in (bits, other_bits, all_bits, left, right):
            with self.subTest(call.__name__):
                self.assertEqual(written(call, torch.tensor([5, 6]), torch.tensor([1, 2])), ["x"])

    def test_what_no_version_counts(self):
        index, weight = torch.tensor([1, 2]), torch.randn(4, 3) * 9
        x, mean, variance = torch.randn(2, 3), torch.zeros(3), torch.ones(3)
        self.assertEqual(written(lambda i, w: F.embedding(i, w, max_norm=1.0), index, weight), ["w"])
        self.assertEqual(written(lambda x, m, v: F.batch_norm(x, m, v, training=True), x, mean, variance), ["m", "v"])
        self.assertEqual(written(lambda x, m, v: torch.batch_norm(x, None, None, m, v, True, 0.1, 1e-5, False), x, mean, variance),
                         ["m", "v"])

    def test_what_changes_nothing(self):
        x, y, index = torch.rand(3, 4), torch.rand(4), torch.tensor([1, 2])
        for call in (lambda x, y, i: F.batch_norm(x, y, y), lambda x, y, i: F.embedding(i, x), lambda x, y, i: F.dropout(x, 0.5, False),
                     lambda x, y, i: F.relu(x) + y, lambda x, y, i: torch.ops.aten.add.Tensor(x, y), lambda x, y, i: x.__add__(y),
                     lambda x, y, i: (x > y) & (y > 0) | (x < 0)):
            self.assertEqual(written(call, x, y, index), [])

    def test_functions_that_dynamo_does_not_look_into_may_do_anything(self):
        @torch._dynamo.allow_in_graph
        def somebodys(x, y):
            return x.add_(y)
        self.assertEqual(written(lambda x, y: somebodys(x, y) * 2, torch.rand(3), torch.rand(3)), ["x", "y"])


class ChangedWindowsTest(CompileWindowsCase):
    def block(self, between=None, split=None, forward=None, bias=0.0):
        class Changed(Block):
            def between(self, x, windows):
                return windows if between is None else between(self, x, windows)

            def split(self, qkv):
                return super().split(qkv) if split is None else split(self, qkv, super().split)
        return Changed(shift=0 if forward else 1)

    def expect_in_place(self, replaced, **changes):
        calls = self.compiled(self.block(**changes), torch.randn(2, 4, 6, 32, dtype=torch.bfloat16), 0.03)
        found = [call.replaced for call in calls if call.operator == "window_attention"]
        self.assertEqual(any(found), replaced, calls)

    def test_what_changes_windows_on_their_way_is_not_left_out(self):
        def q_times_two(block, qkv, split):
            q, k, v = split(qkv)
            q.mul_(2)
            return q, k, v

        def v_rectified(block, qkv, split):
            q, k, v = split(qkv)
            return q, k, F.relu(v, inplace=True)

        def all_plus_one(block, qkv, split):
            qkv += 1
            return split(qkv)

        def a_row(block, qkv, split):
            qkv[:, 0] = 0
            return split(qkv)
        self.expect_in_place(True)
        for change in (q_times_two, v_rectified, all_plus_one, a_row):
            with self.subTest(change.__name__):
                torch._dynamo.reset()
                self.expect_in_place(False, split=change)
        with self.subTest("the windows"):
            torch._dynamo.reset()
            self.expect_in_place(False, between=lambda block, x, windows: windows.mul_(3))

    def test_a_factor_in_place_is_the_calls_own(self):
        def scaled(block, qkv, split):
            q, k, v = split(qkv)
            q *= 0.5
            return q, k, v
        self.expect_in_place(True, split=scaled)


class EffectsCase(CompileCase):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(attention_pattern, "selected", served_by_nearest)
        patch.start()
        self.addCleanup(patch.stop)
        self.q, self.k, self.v = packed(2, 5, 3, 64, dtype=torch.bfloat16)

    def expect_same(self, call, *inputs, replaced=None, fullgraph=True, bound=0.03):
        """The answers, what inputs are afterwards and strides of results are as PyTorch's; how many calls of attention were replaced."""
        torch._dynamo.reset()
        theirs, ours = copy.deepcopy(inputs), copy.deepcopy(inputs)
        with torch.no_grad():
            want = call(*theirs)
            compiled = vitune.compile(call, fullgraph=fullgraph)
            got = compiled(*ours)
        for a, b in zip(torch.utils._pytree.tree_leaves((got, ours)), torch.utils._pytree.tree_leaves((want, theirs))):
            self.expect_close(a, b, bound)
            self.assertEqual(a.stride(), b.stride())
        report = vitune.report(compiled)
        found = [c.replaced for c in report.calls if c.operator == "attention"]
        if replaced is not None:
            self.assertEqual(found, replaced, report)
        return report


class ChangedBetweenTest(EffectsCase):
    def test_masks_of_windows_are_taken_apart_where_nothing_changes_them(self):
        bias, windows = torch.randn(1, 3, 5, 5, dtype=torch.bfloat16), torch.randn(1, 2, 1, 5, 5, dtype=torch.bfloat16)
        q, k, v = packed(6, 5, 3, 64, dtype=torch.bfloat16)

        def call(q, k, v, bias, windows, change):
            mask = bias + windows.expand(3, 2, 1, 5, 5).reshape(6, 1, 5, 5)
            change(bias, windows)
            return F.scaled_dot_product_attention(q, k, v, mask)
        op = torch.ops.vitune.attention_repeating_mask.default
        for name, change, apart in (("nothing", lambda bias, windows: None, True), ("bias", lambda bias, windows: bias.mul_(3), False),
                                    ("windows", lambda bias, windows: windows.zero_(), False)):
            with self.subTest(name):
                self.expect_same(lambda *tensors, change=change: call(*tensors, change), q, k, v, bias, windows, replaced=[True])
                self.assertEqual(op in without_inductor.calls, apart)

    def test_scores_in_a_wider_type_stay_so(self):
        q, k, v = (x.float() * 3 for x in (self.q, self.k, self.v))

        def wide(q, k, v):
            return (q @ k.mT * 0.125).softmax(-1).bfloat16() @ v.bfloat16()

        def cast_up(q, k, v):
            return (q.float() @ k.float().transpose(-2, -1) * 0.125).softmax(-1).bfloat16() @ v
        report = self.expect_same(wide, q, k, v, replaced=[False])
        self.assertIn("a wider type", report.calls[0].reason)
        self.expect_same(cast_up, self.q, self.k, self.v, replaced=[True])

    def test_a_factor_may_stand_first(self):
        self.expect_same(lambda q, k, v: (0.125 * (q @ k.mT)).softmax(-1) @ v, self.q, self.k, self.v, replaced=[True])

    def test_masks_of_every_image_beside_one_query(self):
        mask = torch.randn(3, 1, 5, 5, dtype=torch.bfloat16)
        k, v = (torch.randn(3, 2, 5, 64, dtype=torch.bfloat16) for _ in range(2))
        q = torch.randn(1, 2, 5, 64, dtype=torch.bfloat16)
        self.expect_same(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), q, k, v, mask)
        self.assertNotIn(torch.ops.vitune.attention_repeating_mask.default, without_inductor.calls)


class Tokens(nn.Module):
    """Tokens of a convolution, which lie apart, and attention of them."""

    def __init__(self, after=lambda image, tokens, out: out + tokens, before=lambda image: None):
        super().__init__()
        self.embed, self.qkv = nn.Conv2d(3, 192, 4, 4), nn.Linear(192, 576)
        self.before, self.after = before, after
        self.bfloat16().eval()

    def forward(self, x):
        image = self.embed(x)
        tokens = image.flatten(2).transpose(1, 2)
        self.before(image)
        q, k, v = self.qkv(tokens).reshape(tokens.shape[0], -1, 3, 3, 64).permute(2, 0, 3, 1, 4).unbind(0)
        return self.after(image, tokens, F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class StridesTest(EffectsCase):
    def setUp(self):
        super().setUp()
        self.x = torch.randn(2, 3, 8, 12, dtype=torch.bfloat16)

    def expect_tokens(self, **keywords):
        return self.expect_same(Tokens(**keywords), self.x)

    def copies(self):
        return [target for target in without_inductor.calls if target == "contiguous"]

    def test_results_lie_as_they_did(self):
        self.expect_tokens()
        self.expect_tokens(after=lambda image, tokens, out: (tokens * 2, out))
        self.expect_tokens(after=lambda image, tokens, out: (image, out + tokens, tokens.transpose(1, 2).relu()))

    def test_a_view_behind_a_graph_break_is_one(self):
        def after(image, tokens, out):
            total = out + tokens
            torch._dynamo.graph_break()
            return total.transpose(1, 2).view(2, 192, 2, 3) + image
        report = self.expect_same(Tokens(after), self.x, fullgraph=False)
        self.assertGreater(len(report.graphs), 1)

    def test_what_is_written_is_seen_through_every_view(self):
        for name, keywords in {
                "the image before": {"before": lambda image: image.mul_(2)}, "the image": {"after": lambda image, tokens, out: (image.mul_(2), tokens)},
                "the tokens": {"after": lambda image, tokens, out: (tokens.add_(out), image)},
                "a view": {"after": lambda image, tokens, out: (tokens[:, 0].zero_(), image + 1, out)}}.items():
            with self.subTest(name):
                self.expect_tokens(**keywords)

    def test_a_copy_that_would_become_a_view_stays_one(self):
        def after(image, tokens, out):
            total = tokens * 2
            turned = total.reshape(2, -1)  # a copy, as long as the tokens lie apart
            turned.zero_()
            return total, turned
        self.expect_tokens(after=after)

    def test_results_that_share_memory_are_the_same_ones(self):
        def after(image, tokens, out):
            total = tokens * 2
            return total, total.reshape(2, -1), total.transpose(1, 2).reshape(2, 192, 2, 3)
        self.expect_tokens(after=after)
        model, x = Tokens(after), self.x
        torch._dynamo.reset()
        with torch.no_grad():
            for call in (model, vitune.compile(model, fullgraph=True)):
                total, flat, image = call(x)
                self.assertNotEqual(total.untyped_storage().data_ptr(), flat.untyped_storage().data_ptr())
                self.assertEqual(total.untyped_storage().data_ptr(), image.untyped_storage().data_ptr())

    def test_as_strided_reads_the_memory_that_there_was(self):
        self.expect_tokens(after=lambda image, tokens, out: (tokens * 2).as_strided((3, 4), (7, 1), 2))

    def test_somebodys_kernel_is_given_the_strides_that_it_had(self):
        seen = []

        @torch.library.custom_op("vitune_tests::strides", mutates_args=())
        def strides(x: torch.Tensor) -> torch.Tensor:
            seen.append(x.stride())
            return x.clone(memory_format=torch.contiguous_format)

        @strides.register_fake
        def _(x):
            return torch.empty(x.shape, dtype=x.dtype)
        self.expect_tokens(after=lambda image, tokens, out: strides(tokens * 2) + out)
        self.assertEqual(len(set(seen)), 1, seen)


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 192).bfloat16()

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(2, 5, 3, 1, 64).permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(q, k, v)


class ObjectsTest(EffectsCase):
    def test_a_copy_and_what_was_saved_compile_for_themselves(self):
        model, x = Attends(), torch.randn(2, 5, 32, dtype=torch.bfloat16)
        compiled, file = vitune.compile(model), io.BytesIO()
        with torch.no_grad():
            want = compiled(x)
            torch.save(compiled, file)
            file.seek(0)
            for other in (copy.deepcopy(compiled), torch.load(file, weights_only=False)):
                self.assertTrue(torch.equal(other(x), want))
                self.assertEqual([c.replaced for c in vitune.report(other).calls if c.operator == "attention"], [True])
                other.get_parameter("qkv.weight").zero_()
                self.expect_close(other(x), other.qkv.bias[128:].expand(2, 1, 5, 64))
            self.assertTrue(torch.equal(compiled(x), want))
        self.assertEqual(len(vitune.report(compiled).graphs), 1)

    def test_a_reset_forgets_the_graphs(self):
        model, x = Attends(), torch.randn(2, 5, 32, dtype=torch.bfloat16)
        compiled = vitune.compile(model)
        for _ in range(2):
            with torch.no_grad():
                compiled(x)
            self.assertEqual(len(vitune.report(compiled).graphs), 1)
            torch._dynamo.reset()

    def test_it_decorates(self):
        @vitune.compile(fullgraph=True)
        def call(q, k, v):
            return F.scaled_dot_product_attention(q, k, v)
        with torch.no_grad():
            self.expect_close(call(self.q, self.k, self.v), F.scaled_dot_product_attention(self.q, self.k, self.v))
        self.assertEqual([c.replaced for c in vitune.report(call).calls], [True])

    def test_sizes_that_only_data_knows_compile(self):
        def call(x, count):
            n = count.item()
            torch._check(n > 0)
            image = x.expand(n, 3, 8, 12).flatten(2).transpose(1, 2)
            return image.float().sum((1, 2)) + x.new_zeros(n).float()
        x, count = torch.randn(1, 3, 8, 12, dtype=torch.bfloat16), torch.tensor(3)
        with torch.no_grad(), torch._dynamo.config.patch(capture_scalar_outputs=True):
            self.expect_close(vitune.compile(call, fullgraph=True)(x, count), call(x, count), 0.5)


if __name__ == "__main__":
    unittest.main()
