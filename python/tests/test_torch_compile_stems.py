# python/tests/test_torch_compile_stems.py -- Convolutions that make tokens lie with channels last: models, programs, and who decides.
# SPDX-License-Identifier: Apache-2.0
"""A CPU stands in for a GPU, and times are the test's own. Both sides of each race run, so that they are right calls."""
import copy
import itertools
import unittest
from unittest import mock

import vitune

from .support import needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch import fx, nn

from vitune._compile import backend
from vitune._compile.patterns import benchmark, stems, stems_race
from vitune._compile.patterns.layouts import Layouts
from vitune._compile.patterns.match import Rewrite
from vitune._compile.patterns.tree import is_op

from .test_torch_compile import without_inductor
from .train_step_cases import one_thread

try:
    import timm
except ImportError:
    timm = None

setUpModule = one_thread

LAST = torch.channels_last


class Stem(nn.Module):
    """As compact convolutional transformers make tokens; a sum and a norm behind."""

    def __init__(self, inplace=False, gives_image=False, **keywords):
        super().__init__()
        torch.manual_seed(0)
        words = {"stride": 2, "padding": 3, **keywords}
        self.first, self.second = nn.Conv2d(3, 16, 7, bias=False, **words), nn.Conv2d(16, 24, 7, **words)
        self.positions, self.norm = nn.Parameter(torch.randn(24) * 0.1), nn.LayerNorm(24)
        self.inplace, self.gives_image = inplace, gives_image

    def image(self, x):
        for convolution in (self.first, self.second):
            x = F.max_pool2d(F.relu(convolution(x), self.inplace), 3, 2, 1)
        return x

    def tokens(self, image):
        return image.flatten(2).transpose(1, 2)

    def forward(self, x):
        image = self.image(x)
        tokens = self.norm(self.tokens(image) + self.positions)
        return (tokens, image) if self.gives_image else tokens


class Ending(Stem):
    """With another way to tokens."""

    def __init__(self, tokens, **keywords):
        super().__init__(**keywords)
        self.tokens = tokens


class Seen:
    """A compiler that lays stems out, and nothing else."""

    def __call__(self, module, inputs):
        before = [node.format_node() for node in module.graph.nodes]
        self.taken = stems.lay_out(module)
        module.graph.lint()
        module.recompile()
        self.nodes, self.is_as_before = list(module.graph.nodes), before == [node.format_node() for node in module.graph.nodes]
        return module

    def convolutions(self):
        return [node for node in self.nodes if is_op(node, "conv2d")]


def images(*size, dtype=torch.float32):
    torch.manual_seed(4)
    return torch.randn(2, 3, *(size or (64, 48))).to(dtype)


def autocast(on):
    return torch.autocast("cpu", torch.bfloat16, enabled=on)


@needs_torch
class StemCase(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        #: Times of one convolution by each of its forms; how many there were of each race.
        self.us, self.races = {"_as_it_lies": 3000.0, "_last": 2000.0, "_deep": 1000.0}, []
        for module, name, value in ((benchmark, "can_race", lambda device: True), (benchmark, "race", self.race),
                                    (stems_race, "_run", self.run_of), (stems_race, "_times", {})):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    _run = staticmethod(stems_race._run)

    def run_of(self, found, form):
        run = self._run(found, form)
        run.form = form.__name__
        return run

    def race(self, ours, theirs, device):
        self.races.append((ours.form, theirs.form, ours(), theirs()))
        return benchmark.Times(self.us[ours.form], self.us[theirs.form])

    def seen(self, model, x, on=False, **keywords):
        """What becomes of a model's graph; its results are eager mode's, and so is how they lie."""
        torch._dynamo.reset()
        seen = Seen()
        with autocast(on):
            want, got = model(x), torch.compile(copy.deepcopy(model), backend=seen, fullgraph=True, **keywords)(x)
        for mine, right in zip(*(each if isinstance(each, tuple) else (each,) for each in (got, want)), strict=True):
            self.expect_close(mine, right)
            self.assertEqual(mine.stride(), right.stride())
        return seen

    def expect_close(self, got, want, name=""):
        self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), name)
        self.assertLessEqual((got - want).float().norm().item(), 0.02 * want.float().norm().item(), name)


class ModelTest(StemCase):
    def test_tokens_of_convolutions_are_eager_modes_and_rows_without_a_copy(self):
        for inplace, on, size in itertools.product((False, True), (False, True), ((64, 48), (63, 51))):
            with self.subTest(inplace=inplace, autocast=on, size=size), torch.no_grad():
                model = Stem(inplace) if on else Stem(inplace).bfloat16()
                seen = self.seen(model, images(*size, dtype=torch.float32 if on else torch.bfloat16), on)
                self.assertEqual([(taken.count, taken.by_depth) for taken in seen.taken], [(2, 1)])
                first, second = seen.convolutions()
                self.assertEqual([tuple(node.meta["example_value"].shape[1:]) for node in first.args[:2]][1], (16, 4, 4))
                for node in (*first.args[:2], *second.args[:2], first, second):
                    self.assertTrue(node.meta["example_value"].is_contiguous(memory_format=LAST), node)
                    self.assertEqual(node.meta["example_value"].dtype, torch.bfloat16, node)
                tokens = next(node for node in seen.nodes if is_op(node, "transpose"))
                self.assertTrue(tokens.meta["example_value"].is_contiguous())
                for pool in (node for node in seen.nodes if is_op(node, "max_pool2d")):
                    self.assertTrue(is_op(pool.args[0], "conv2d") and all(is_op(user, "relu") for user in pool.users))

    def test_deterministic_algorithms_leave_them_as_they_are(self):
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        with torch.no_grad():
            self.assertEqual((self.seen(Stem().bfloat16(), images(dtype=torch.bfloat16)).taken, self.races), ([], []))

    def test_gradients_are_eager_modes(self):
        for inplace, on in itertools.product((False, True), (False, True)):
            with self.subTest(inplace=inplace, autocast=on):
                torch._dynamo.reset()
                model, seen = Stem(inplace) if on else Stem(inplace).bfloat16(), Seen()
                eager, x = copy.deepcopy(model), images(dtype=torch.float32 if on else torch.bfloat16)
                for each in (eager, torch.compile(model, backend=seen, fullgraph=True)):
                    with autocast(on):
                        tokens = each(x)
                    (tokens.float() * torch.linspace(-1, 1, 24)).square().sum().backward()
                self.assertEqual([(taken.count, taken.by_depth) for taken in seen.taken], [(2, 1)])
                for (name, mine), right in zip(model.named_parameters(), eager.parameters()):
                    self.expect_close(mine.grad, right.grad, name)

    def test_a_pool_that_trains_keeps_bytes_where_it_is_of_windows_of_three_two_apart(self):
        for words, ours in (((3, 2, 1), 2), ((2, 2), 0), ((3, 2, 1, 1, True), 0), ((3, (2, 1), 1), 0)):
            model, x = Stem().bfloat16(), images(dtype=torch.bfloat16)
            model.image = lambda x, model=model, words=words: F.max_pool2d(F.relu(model.second(F.max_pool2d(model.first(x), *words))), *words)
            for wants in (True, False):
                with torch.set_grad_enabled(wants):
                    seen = self.seen(model, x)
                found = [node for node in seen.nodes if node.target is torch.ops.vitune.max_pool_train.default]
                self.assertEqual((len(found), len(seen.taken)), (ours * wants, 1), (words, wants))
                self.assertEqual(sum(is_op(node, "max_pool2d") for node in seen.nodes), 2 - ours * wants)
        with mock.patch.object(stems.max_pool, "CAN_TRAIN", False):  # an older PyTorch
            seen = self.seen(Stem().bfloat16(), images(dtype=torch.bfloat16))
        self.assertEqual(sum(is_op(node, "max_pool2d") for node in seen.nodes), 2)

    def test_both_sides_of_a_race_are_the_same_convolution_with_its_gradients(self):
        self.seen(Stem().bfloat16(), images(dtype=torch.bfloat16))
        self.assertEqual([race[:2] for race in self.races], [("_last", "_as_it_lies"), ("_deep", "_last"), ("_last", "_as_it_lies")])
        counts = [(len(ours), len(theirs)) for _, _, ours, theirs in self.races]
        self.assertEqual(counts, [(2, 2), (2, 2), (3, 3)])  # result, gradients of the image (of the second one alone) and of the weight
        for _, _, ours, theirs in self.races:
            self.assertEqual(ours[0].shape, theirs[0].shape)
            self.assertTrue(ours[0].is_contiguous(memory_format=LAST))

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_stems_of_timm(self):
        for name, taken in (("hiera_tiny_224", [(1, 1)]), ("levit_128s", [(4, 1)]), ("pvt_v2_b0", [])):  # whose other convolutions have groups
            with self.subTest(name), torch.no_grad():
                torch.manual_seed(0)
                model, x, seen = timm.create_model(name).eval().bfloat16(), images(224, 224, dtype=torch.bfloat16), Seen()
                torch._dynamo.reset()
                got = torch.compile(model.forward_features, backend=seen)(x)
                self.expect_close(got, model.forward_features(x))
                self.assertEqual([(each.count, each.by_depth) for each in seen.taken], taken)


class ChainTest(StemCase):
    def test_tokens_in_every_spelling(self):
        for tokens in (lambda x: x.flatten(2).transpose(1, 2), lambda x: x.flatten(2).permute(0, 2, 1), lambda x: x.flatten(2).transpose(-1, -2),
                       lambda x: x.reshape(2, 24, -1).transpose(2, 1), lambda x: x.view(2, 24, -1).transpose(1, 2),
                       lambda x: x.permute(0, 2, 3, 1), lambda x: x.permute(0, 2, 3, 1).flatten(1, 2)):
            with torch.no_grad():
                seen = self.seen(Ending(tokens).bfloat16(), images(dtype=torch.bfloat16))
                self.assertEqual([taken.count for taken in seen.taken], [2])

    def test_an_image_that_leaves_the_graph_lies_as_before(self):
        with torch.no_grad():
            seen = self.seen(Stem(gives_image=True).bfloat16(), images(dtype=torch.bfloat16))
        self.assertEqual([taken.count for taken in seen.taken], [2])

    def test_results_that_share_memory_still_do(self):
        x = images(dtype=torch.bfloat16)

        class Both(Stem):
            def forward(self, x):
                image = self.image(x)
                return image, self.tokens(image)

        class BeforeAndAfter(Stem):
            def forward(self, x):
                before = self.second(self.first(x))
                after = F.relu(before, True)
                return before, after, self.norm(self.tokens(after))
        for model in (Both().bfloat16(), BeforeAndAfter().bfloat16()):
            with torch.no_grad():
                seen = self.seen(model, x)
                one, other, *_ = torch.compile(model, backend=Seen(), fullgraph=True)(x)
                self.assertEqual((seen.is_as_before, one.untyped_storage()._cdata), (True, other.untyped_storage()._cdata))

    def test_an_image_that_is_written_behind_a_pool_has_its_gradients(self):
        class Written(Stem):
            def image(self, x):
                x = super().image(x)
                x *= 2
                return x
        model, seen, x = Written().bfloat16(), Seen(), images(dtype=torch.bfloat16)
        eager = copy.deepcopy(model)
        for each in (eager, torch.compile(model, backend=seen, fullgraph=True)):
            each(x).float().square().sum().backward()
        self.assertEqual([(taken.count, taken.by_depth) for taken in seen.taken], [(2, 1)])
        for (name, mine), right in zip(model.named_parameters(), eager.parameters()):
            self.assertEqual(mine.grad is None, right.grad is None)
            if right.grad is not None:
                self.expect_close(mine.grad, right.grad, name)

    def test_what_torch_func_transforms_keeps_its_pool(self):
        convolution, x = nn.Conv2d(3, 16, 7, 2, 3).bfloat16(), images(dtype=torch.bfloat16)

        def program(x):
            image = convolution(x)
            return torch.func.grad(lambda scale: (F.max_pool2d(F.relu(image), 3, 2, 1).flatten(2).transpose(1, 2) * scale).sum())(
                torch.ones((), dtype=torch.bfloat16))
        seen = Seen()
        self.expect_close(torch.compile(program, backend=seen, fullgraph=True)(x), program(x))
        self.assertFalse([node for node in seen.nodes if node.target is torch.ops.vitune.max_pool_train.default])
        torch._dynamo.reset()
        with mock.patch.object(backend, "compile_fx", without_inductor):
            self.expect_close(vitune.compile(program, fullgraph=True)(x), program(x))  # tensors without a storage of their own

    def test_what_is_no_chain_to_tokens_stays_as_it_is(self):
        x = images(dtype=torch.bfloat16)

        def grouped(stem):
            stem.second = nn.Conv2d(16, 24, 3, padding=1, groups=4)

        def patches(stem):
            stem.image, stem.first = (lambda x: stem.first(x)), nn.Conv2d(3, 24, 8, 8)

        def words(stem):
            stem.image, stem.first = (lambda x: stem.first(x)), nn.Conv2d(3, 24, 7, padding="same")

        def dilated(stem):
            stem.image, stem.first = (lambda x: stem.first(x)), nn.Conv2d(3, 24, 7, dilation=2)
        for change in (grouped, patches, words, dilated):
            with self.subTest(change.__name__), torch.no_grad():
                model = Stem()
                change(model)
                model = model.bfloat16()
                torch._dynamo.reset()
                seen = Seen()
                torch.compile(model, backend=seen, fullgraph=True)(x)
                self.assertTrue(seen.is_as_before)
        for model in (Ending(lambda x: x.mean((2, 3))), Ending(lambda x: x.flatten(2).flatten(1).view(2, -1, 24)),
                      Ending(lambda x: x.sum(3).transpose(1, 2)),
                      Ending(lambda x: F.max_pool2d(x, 2, return_indices=True)[0].flatten(2).transpose(1, 2)),
                      Ending(lambda x: x.flatten(2).transpose(1, 2).transpose(1, 2).view(2, -1).view(2, -1, 24))):
            with torch.no_grad():
                self.assertTrue(self.seen(model.bfloat16(), x).is_as_before)
        self.assertTrue(self.seen(Stem(), images()).is_as_before)  # fp32
        with torch.no_grad():
            self.assertTrue(self.seen(Stem().bfloat16(), x, dynamic=True).is_as_before)

    def test_images_that_want_a_gradient_are_not_rearranged(self):
        x = images(dtype=torch.bfloat16).requires_grad_()
        model, seen = Stem().bfloat16(), Seen()
        results = [(each := f(x), torch.autograd.grad(each.float().square().sum(), x)[0])
                   for f in (model, torch.compile(copy.deepcopy(model), backend=seen, fullgraph=True))]
        self.assertEqual([(taken.count, taken.by_depth) for taken in seen.taken], [(2, 0)])
        for right, mine in zip(*results):
            self.expect_close(mine, right)

    def test_images_and_weights_that_lie_so_are_not_copied(self):
        with torch.no_grad():
            self.us["_deep"] = 2000.0
            seen = self.seen(Stem().bfloat16().to(memory_format=LAST), images(dtype=torch.bfloat16).contiguous(memory_format=LAST))
        self.assertEqual([node.op for call in seen.convolutions()[:1] for node in call.args[:2]], ["placeholder"] * 2)

    def test_convolutions_that_meet_are_one_chain(self):
        class Branches(Stem):
            def image(self, x):
                x = self.first(x)
                return F.gelu(self.second(x)) + F.hardswish(self.third(x))
        with torch.no_grad():
            model = Branches()
            model.third = nn.Conv2d(16, 24, 3, 2, 1)
            seen = self.seen(model.bfloat16(), images(dtype=torch.bfloat16))
        self.assertEqual([(taken.count, taken.by_depth) for taken in seen.taken], [(3, 1)])


class DecisionTest(StemCase):
    def test_a_race_decides(self):
        x = images(dtype=torch.bfloat16)
        for last, deep, want in ((2000.0, 1990.0, [(2, 0)]), (2000.0, 1900.0, [(2, 1)]), (2990.0, 2950.0, []), (5500.0, 1000.0, []),
                                 (4000.0, 1000.0, [(2, 1)])):
            with self.subTest(last=last, deep=deep), torch.no_grad():
                self.us.update(_last=last, _deep=deep)
                stems_race._times.clear()
                seen = self.seen(Stem().bfloat16(), x)
                self.assertEqual([(taken.count, taken.by_depth) for taken in seen.taken], want)
                self.assertEqual(seen.is_as_before, not want)

    def test_equal_convolutions_are_raced_once(self):
        with torch.no_grad():
            for _ in range(2):
                self.seen(Stem().bfloat16(), images(dtype=torch.bfloat16))
            self.assertEqual(len(self.races), 3)
            self.seen(Stem().half(), images(dtype=torch.float16))
            self.assertEqual(len(self.races), 6)
            self.seen(Stem().half(), images(32, 32, dtype=torch.float16))
        self.assertEqual(len(self.races), 9)
        self.seen(Stem().half(), images(32, 32, dtype=torch.float16))
        self.assertEqual(len(self.races), 12)

    def test_where_nothing_can_be_raced_the_graph_stays_as_it_was(self):
        def broken(ours, theirs, device):
            raise RuntimeError("CUDA out of memory")
        for name, value in (("can_race", lambda device: False), ("race", broken)):
            with self.subTest(name), mock.patch.object(benchmark, name, value), torch.no_grad():
                self.assertTrue(self.seen(Stem().bfloat16(), images(dtype=torch.bfloat16)).is_as_before)

    def test_a_failure_leaves_the_graph_as_it_was(self):
        for broken in ("check", "_orders_of_results"):
            for inplace in (False, True):
                with self.subTest(broken), mock.patch.object(Layouts, broken, side_effect=RuntimeError("no view")), torch.no_grad():
                    self.assertTrue(self.seen(Stem(inplace).bfloat16(), images(dtype=torch.bfloat16)).is_as_before)

    def test_the_report_says_it_and_operators_that_are_asked_for_by_name_keep_it_out(self):
        said = "2 convolutions lie with channels last, the first by space to depth: 3 ms, as they were 6"
        model, x = Stem().bfloat16(), images(dtype=torch.bfloat16)
        with mock.patch.object(backend, "compile_fx", without_inductor), torch.no_grad():
            for replace, want in ((None, said), (["norm"], "")):
                torch._dynamo.reset()
                compiled = vitune.compile(model, fullgraph=True, replace=replace)
                self.expect_close(compiled(x), model(x))
                report = vitune.report(compiled)
                self.assertEqual([graph.stems for graph in report.graphs], [want])
                self.assertEqual((f"\n   {said}" in str(report), f"<p>{said}</p>" in report._repr_html_()), (bool(want),) * 2)

    def test_what_inductor_keeps_of_it_is_kept_for_this_release(self):
        patches = []

        def compile_fx(module, inputs, config_patches=None, **keywords):
            patches.append(config_patches)
            return module.forward
        with mock.patch.object(backend, "compile_fx", compile_fx):
            for model in (Stem().bfloat16(), nn.Linear(64, 64)):
                torch._dynamo.reset()
                vitune.compile(model, fullgraph=True)(images(64, 64, dtype=next(model.parameters()).dtype))
        self.assertEqual(["post_grad_custom_post_pass" in each for each in patches], [True, False])

    def test_inductor_compiles_both_passes(self):
        model, x = Stem(), images()
        eager = copy.deepcopy(model)
        compiled = vitune.compile(model, fullgraph=True)
        for each in (eager, compiled):
            with autocast(True):
                tokens = each(x)
            (tokens.float() * torch.linspace(-1, 1, 24)).square().sum().backward()
        self.assertIn("2 convolutions lie", vitune.report(compiled).graphs[0].stems)
        for (name, mine), right in zip(model.named_parameters(), eager.parameters()):
            self.expect_close(mine.grad, right.grad, name)


class _Values(fx.Interpreter):
    def run_node(self, node):
        node.meta["example_value"] = super().run_node(node)
        return node.meta["example_value"]


class PoolTest(unittest.TestCase):
    """relu behind a pool in the place of a pool behind relu."""

    def rewritten(self, program, x):
        """Whether it is, and what it is."""
        module = fx.symbolic_trace(program)
        _Values(module).run(x.clone())
        rewrite = Rewrite(module.graph, lambda recipe: ())
        for place in list(stems._pools(list(module.graph.nodes))):
            rewrite.put(place)
        is_rewritten = bool(rewrite.ours)
        rewrite.finish()
        module.recompile()
        return is_rewritten, module

    def numbers(self, dtype):
        """Ties, windows of negative numbers alone, infinities, NaN, both zeros."""
        torch.manual_seed(7)
        x = torch.randint(-3, 3, (2, 3, 13, 11)).to(dtype)
        x[0, 0, :7], x[0, 1, 3:5, 2:6], x[1, 2, ::4], x[1, 0, 2:4, 5:9], x[1, 1, 6] = -2.0, torch.nan, -0.0, torch.inf, -torch.inf
        return x

    def test_values_and_gradients_are_the_same_to_the_bit(self):
        for words in ((3, 2, 1), (2,), (3, 1, 1), (3, 2, 0, 1, True), (3, 2, 1, 1, True), (2, 3, 1), ((3, 2), (2, 1), (1, 0)), (3, 2, 0, 2)):
            for dtype, inplace in itertools.product((torch.float32, torch.bfloat16), (False, True)):
                def program(x):
                    return F.max_pool2d(F.relu(x * 1, inplace), *words) * 1
                with self.subTest(words=words, dtype=dtype, inplace=inplace):
                    x = self.numbers(dtype).requires_grad_()
                    is_rewritten, module = self.rewritten(program, x)
                    self.assertTrue(is_rewritten)
                    results = []
                    for each in (module, program):
                        y = each(x)
                        results.append((y, torch.autograd.grad(y, x, torch.arange(y.numel()).view(y.shape).to(dtype))[0]))
                    for mine, right in zip(*results):
                        torch.testing.assert_close(mine, right, rtol=0, atol=0, equal_nan=True)

    def test_what_relu_keeps_for_its_gradient_is_written_by_nobody(self):
        def written(x):
            y = F.max_pool2d(F.relu(x * 1), 2)
            y.mul_(2)
            return y

        def written_as_a_view(x):
            y = F.max_pool2d(F.relu(x * 1), 2)
            y.flatten(2).transpose(1, 2).add_(1)
            return y
        for program in (written, written_as_a_view, lambda x: F.max_pool2d(F.relu(x * 1), 2)):
            x = self.numbers(torch.float32)
            self.assertEqual(self.rewritten(program, x)[0], True)
            is_rewritten, module = self.rewritten(program, x.requires_grad_())
            self.assertEqual(is_rewritten, False)
            module(x).sum().backward()

    def test_what_is_seen_elsewhere_stays_as_it_is(self):
        def two_readers(x):
            y = F.relu(x * 1)
            return F.max_pool2d(y, 2), y

        def written(x):
            y = x * 1
            return F.max_pool2d(F.relu(y, True), 2), y.sum()

        def viewed(x):
            y = x * 1
            z = y[0]
            return F.max_pool2d(F.relu(y, True), 2), z
        for program in (two_readers, written, viewed, lambda x: F.max_pool2d(F.relu(x), 2, return_indices=True)[0],
                        lambda x: F.max_pool2d(F.relu(x * 1), 2, 1, 1, 5)):  # a window without a pixel
            self.assertEqual(self.rewritten(program, self.numbers(torch.float32))[0], False)


if __name__ == "__main__":
    unittest.main()
