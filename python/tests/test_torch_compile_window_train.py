# python/tests/test_torch_compile_window_train.py -- vitune.compile() on models that attend in windows and train: what is found, gradients, the race.
# SPDX-License-Identifier: Apache-2.0
"""As test_torch_compile_train.py: on a CPU, by name, aot_eager in the place of Inductor."""
import copy
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if OPERATORS:
    raise unittest.SkipTest("windows that train are not the operators' library's: once is enough")

from torch import nn

from vitune._compile import checkpoints
from vitune._compile.patterns import benchmark, every
from vitune._compile.patterns.match import value_of, wants_gradient
from vitune._compile.patterns.tree import is_op
from vitune._compile.patterns import windows_train
from vitune._ops import attention as attention_ops, window_attention as window_attention_ops, window_attention_training as training

from . import test_torch_compile_train as linear_case, test_torch_compile_train_race as race_case
from .test_torch_compile_train import OPS, Checkpointed, autocast, step, timm
from .test_torch_compile_windows import Block
from .test_torch_train import launch_staged
from .test_torch_window_train import KNOWS_GRADIENTS
from .test_torch_windows import launch_windows_staged

TARGET = OPS.window_attention_train.default
#: Functions that move pixels or attend without it.
LEFT = ("roll", "scaled_dot_product_attention", "softmax")


class WindowsCase(linear_case.TrainCase):
    operator = "window_attention_train"

    def compile_fx(self, module, inputs, config_patches=None):
        nodes = [node for each in (module, *checkpoints.bodies(module)) for node in each.graph.nodes]
        self.calls = [node for node in nodes if node.target is TARGET]
        self.windows_of_gradients = [value_of(node.args[4]).shape[0] for node in self.calls if node.args[4] is not None]
        self.layers = [all(wants_gradient(value_of(each)) for each in (node, *node.all_input_nodes)) for node in nodes if is_op(node, "linear")]
        self.left = [name for node in nodes if (name := getattr(node.target, "__name__", node.target)) in LEFT]
        return super().compile_fx(module, inputs, config_patches)

    def expect_windows(self, count, model, x, bound=1e-5, left=0, **keywords):
        """Expects loss and gradients to be eager mode's with so many calls in place, and the others of LEFT as they were."""
        calls = self.expect_eagers(model, x, bound, **keywords)
        self.assertEqual([call.reason for call in calls if call.replaced], [""] * count, calls)
        self.assertEqual((len(self.calls), len(self.left)), (count, left), calls)
        return calls

    def tables(self):
        """For each call of the last graph, if its gradient is one of a table."""
        return [node.args[5] is not None for node in self.calls]


def drawn(model):
    """In training, its biases and tables far from zero."""
    for name, parameter in model.named_parameters():
        if name.endswith(("bias_table", "qkv.bias")):
            nn.init.normal_(parameter)
    return model.train()


def a_model(name, fused=True, **keywords):
    torch.manual_seed(0)
    was = timm.layers.config._USE_FUSED_ATTN
    timm.layers.set_fused_attn(fused, experimental=True)
    try:
        return drawn(timm.create_model(name, num_classes=4, **keywords))
    finally:
        timm.layers.config._USE_FUSED_ATTN = was


def swin(fused=True, **keywords):
    return a_model("swin_tiny_patch4_window7_224", fused, **{"img_size": 56, "embed_dim": 16, "depths": (2, 1), "num_heads": (1, 2), **keywords})


def padded_swin(**keywords):
    return swin(**{"img_size": (36, 28), "depths": (2,), "num_heads": (2,), "window_size": 4, "always_partition": True, **keywords})


def x_of(*size, batch=2):
    return torch.randn(batch, 3, *size)


@unittest.skipIf(timm is None, "timm is not installed")
class TimmTest(WindowsCase):
    def test_loss_and_gradients_of_swin_are_eager_modes_in_each_type(self):
        x = x_of(56, 56)
        for fused in (True, False):
            with self.subTest(fused=fused):
                self.expect_windows(3, swin(fused), x)
                self.assertEqual(self.tables(), [True] * 3)
                self.expect_windows(3, swin(fused), x, 2e-2 if fused else 6e-2, on=True)
                self.expect_windows(3, swin(fused).bfloat16(), x.bfloat16(), 8e-2)

    def test_a_bias_is_read_in_the_type_that_the_model_adds_it_in(self):
        for fused, dtype in ((True, torch.bfloat16), (False, torch.float32)):
            read = []
            forward = training.forward_by_torch
            with mock.patch.object(training, "forward_by_torch", lambda qkv, bias, *rest: read.append(bias.dtype) or forward(qkv, bias, *rest)):
                self.expect_windows(3, swin(fused), x_of(56, 56), 6e-2, on=True)
            self.assertEqual(read, [dtype] * 3)

    def test_padding_has_a_gradient(self):
        x = x_of(36, 28)
        self.expect_windows(2, padded_swin(), x)
        self.expect_windows(2, padded_swin(), x, 3e-2, on=True)
        self.expect_windows(2, padded_swin(qkv_bias=False), x)

    def test_blocks_and_grids_of_maxvit_and_groups_of_twins(self):
        small = {"img_size": 64, "depths": (1,), "embed_dim": (32,), "stem_width": 16}
        cases = {"a table": ("maxvit_tiny_rw_224", small, 64, 2, 0), "by products": ("maxvit_tiny_tf_224", small, 64, 2, 0),
                 "Twins": ("twins_svt_small", {"img_size": 72, "depths": (2,), "embed_dims": (32,), "num_heads": (2,), "mlp_ratios": (2,),
                                               "sr_ratios": (8,), "wss": (7,)}, 72, 1, 1)}
        for kind, (name, keywords, size, count, left) in cases.items():
            for fused in (True, False):
                with self.subTest(kind, fused=fused):
                    model = a_model(name, fused, **keywords)
                    for parameter in [p for n, p in model.named_parameters() if n in ("stem.conv1.bias", "stages.0.blocks.0.conv.pre_norm.bias")]:
                        parameter.requires_grad_(False)  # a norm of the batch follows, so that it is 0 but for rounding
                    self.expect_windows(count, model, x_of(size, size), 2e-4, left=left)
                    self.assertEqual(self.tables(), [kind == "a table"] * count)

    def test_swinv2_is_pytorchs_and_it_is_said(self):
        model = a_model("swinv2_tiny_window8_256", img_size=64, embed_dim=32, depths=(2,), num_heads=(2,))
        calls = self.expect_windows(0, model, x_of(64, 64), left=4)
        self.assertEqual({call.reason.partition(":")[0] for call in calls}, {"q, k and v are no views of one layer's result"})
        self.assertEqual([call.call for call in calls], ["softmax between two products in windows of an image in training"] * 2)

    def test_checkpointed_blocks_train_and_with_all_of_a_block(self):
        names = ["window_attention_train", "norm_train", "linear_train"]
        for keywords in ({}, {"on": True, "bound": 3e-2}):
            model = padded_swin()
            model.set_grad_checkpointing()
            self.expect_windows(2, model, x_of(36, 28), **keywords)
            self.expect_windows(2, model, x_of(36, 28), replace=names, **keywords)
            model.set_grad_checkpointing(False)
            self.expect_windows(2, model, x_of(36, 28), replace=names, **keywords)
            self.assertEqual(self.targets.count(OPS.linear_train.default), 2 * 2 + 1)  # the projections around it are layers of images

    def test_layers_around_it_have_all_of_their_gradients(self):
        self.expect_windows(2, padded_swin(), x_of(36, 28))
        self.assertEqual(self.layers, [True] * len(self.layers))
        self.assertEqual(len(self.layers), 2 * 4 + 1)

    def test_drop_path_trains_and_dropout_is_left(self):
        self.expect_windows(2, padded_swin(drop_path_rate=0.3), x_of(36, 28))
        for fused, call in ((True, "scaled_dot_product_attention"), (False, "softmax between two products")):
            calls = self.expect_eagers(padded_swin(fused=fused, attn_drop_rate=0.1), x_of(36, 28), 1e-5)
            self.assertEqual([(each.call, each.reason) for each in calls], [
                (f"{call} in windows of an image in training", "dropout of 0.1: the kernels that train have none")] * 2)
        calls = self.expect_eagers(padded_swin(proj_drop_rate=0.1), x_of(36, 28), 1e-5)
        self.assertEqual({each.reason for each in calls}, {"its result does not go back to where the queries came from"})

    def test_tables_that_are_frozen_or_shared(self):
        model = padded_swin()
        first, second = model.layers[0].blocks
        second.attn.relative_position_bias_table = first.attn.relative_position_bias_table
        self.expect_windows(2, model, x_of(36, 28))
        first.attn.relative_position_bias_table.requires_grad_(False)
        self.expect_windows(2, model, x_of(36, 28))
        self.assertEqual([node.args[4] for node in self.calls], [None] * 2)
        first.attn.qkv.requires_grad_(False)
        self.expect_windows(2, model, x_of(36, 28))
        model.requires_grad_(False)
        first.attn.relative_position_bias_table.requires_grad_(True)
        self.expect_windows(2, model, x_of(36, 28), images=False)

    def test_deterministic_algorithms_are_served_with_the_same_bits(self):
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        model, x = padded_swin(), x_of(36, 28)
        self.expect_windows(2, model, x, 3e-2, on=True)
        compiled = vitune.compile(model, replace=[self.operator])
        (_, first), (_, again) = step(compiled, x, True), step(compiled, x, True)
        self.assertTrue(all(torch.equal(grad, again[name]) for name, grad in first.items()))


class Biased(Block):
    """bias: what its scores have added, of the block and of the number of windows of all images."""

    def __init__(self, bias, **keywords):
        super().__init__(**keywords)
        self.make, n = bias, self.size**2
        self.table, self.per_window = nn.Parameter(torch.randn(9, 2)), nn.Parameter(torch.randn(6, 2, n, n))
        self.register_buffer("index", torch.randint(0, 9, (n, n)))

    def mask(self, batch):
        return self.make(self, batch)

    def gathered(self):
        return self.table[self.index.view(-1)].view(4, 4, -1).permute(2, 0, 1)


def image():
    return torch.randn(2, 4, 6, 32)


class PatternTest(WindowsCase):
    def test_what_is_a_table_and_what_is_not(self):
        cases = {"as Swin has it": (lambda m, batch: m.gathered().contiguous().unsqueeze(0), True),
                 "of three dimensions": (lambda m, batch: m.gathered(), True),
                 "an index of two": (lambda m, batch: m.table[m.index].permute(2, 0, 1).unsqueeze(0), True),
                 "from the end": (lambda m, batch: m.table[m.index - 9].permute(2, 0, 1).unsqueeze(0), True),
                 "turned round": (lambda m, batch: m.table[m.index].permute(2, 1, 0).unsqueeze(0), False),
                 "copied on the way": (lambda m, batch: m.table[m.index].permute(2, 1, 0).flatten().view(2, 4, 4), False),
                 "scaled": (lambda m, batch: m.gathered() * 2, False),
                 "a function": (lambda m, batch: (16 * m.table.sigmoid())[m.index].permute(2, 0, 1), True),
                 "for each window": (lambda m, batch: m.per_window.repeat(batch // 6, 1, 1, 1), None),
                 "of all heads": (lambda m, batch: m.bias[:, :1], False), "itself": (lambda m, batch: m.bias, False)}
        for name, (bias, is_table) in cases.items():
            with self.subTest(name):
                model = Biased(bias)
                for parameter in (model.table, model.per_window, model.bias):
                    parameter.requires_grad_(False)
                {"for each window": model.per_window, "of all heads": model.bias, "itself": model.bias}.get(name, model.table).requires_grad_()
                self.expect_windows(0 if is_table is None else 1, model, image(), left=0 if is_table is not None else 3)
                self.assertEqual(self.tables(), [] if is_table is None else [is_table])

    def test_masks_of_windows_are_added_and_each_may_have_a_gradient(self):
        def added(masks):
            return lambda m, batch: m.bias + masks(m).view(1, 6, 1, 4, 4).expand(batch // 6, -1, 2, -1, -1).reshape(-1, 2, 4, 4)
        constant = torch.randn(6, 4, 4)
        self.expect_windows(1, Biased(added(lambda m: constant)), image())
        self.assertEqual((self.windows_of_gradients, self.tables()), ([1], [False]))
        self.expect_windows(1, Biased(added(lambda m: m.per_window[:, 0])), image())
        self.assertEqual((self.windows_of_gradients, self.tables()), ([6], [False]))

    def test_padding_comes_first_or_last(self):
        for pads_first in (False, True):
            self.expect_windows(1, Block(pads_first=pads_first), torch.randn(2, 5, 7, 32))

    def test_what_stays_is_told(self):
        class Used(Block):
            def between(self, x, windows):
                self.seen = windows * 2
                return windows

            def forward(self, x):
                return super().forward(x) + self.seen.sum()

        class Written(Block):
            def forward(self, x):
                self.now = self.bias * 1
                out = super().forward(x)
                self.now.add_(1)
                return out * self.now.sum()

            def mask(self, batch):
                return self.now
        cases = {"is used elsewhere": Used(), "is written to later": Written(),
                 "not one for all images": Biased(lambda m, batch: m.bias.repeat(batch, 1, 1, 1)),
                 "its mask is of bool": Biased(lambda m, batch: m.bias > -9)}
        for reason, model in cases.items():
            with self.subTest(reason):
                torch._dynamo.reset()
                compiled = vitune.compile(model, replace=[self.operator])
                step(compiled, image())
                calls = [call for call in vitune.report(compiled).calls if call.operator == self.operator]
                self.assertEqual([call.replaced for call in calls], [False])
                self.assertIn(reason, calls[0].reason)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            calls = self.expect_windows(0, Block(), image(), left=3)
        self.assertEqual([call.reason for call in calls], [attention_ops.MATH_ALONE])

    def test_inference_is_as_before(self):
        compiled = vitune.compile(Block(), replace=[self.operator])
        with torch.no_grad():
            compiled(image())
        self.assertFalse(any(call.trains for call in vitune.report(compiled).calls))

    def test_sizes_that_change_are_one_graph(self):
        model = Biased(lambda m, batch: m.gathered())
        compiled = vitune.compile(copy.deepcopy(model), replace=[self.operator])
        for batch in (2, 3, 5):
            x = torch.randn(batch, 4, 6, 32)  # the second batch tells that it changes
            (loss, grads), (want, wants) = step(compiled, x), step(model, x)
            self.assertAlmostEqual(loss, want, places=5)
            torch.testing.assert_close(grads["table"], wants["table"])
        self.assertEqual((len(self.calls), len(vitune.report(compiled).graphs)), (1, 2))

    def test_checkpoints_and_micro_batches(self):
        self.expect_windows(1, Checkpointed(Block(), 2), image())
        self.expect_windows(1, Block(), image(), 2e-2, on=True, micro=2)

    def test_an_overflow_is_seen_by_the_scaler_and_a_second_derivative_refused(self):
        model, x = Block(), torch.randn(2, 5, 7, 32)
        compiled = vitune.compile(model, replace=[self.operator])
        for poison in (1.0, float("inf")):
            model.zero_grad()
            with autocast(True, torch.float16):
                loss = compiled(x).float().sum()
            (loss * poison).backward()
            self.assertEqual([parameter.grad.isfinite().all().item() for parameter in model.parameters()],
                             [poison == 1.0] * len([*model.parameters()]))
        x.requires_grad_()
        grad, = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "double backward"):
            grad.square().sum().backward()

    def test_steps_of_train_step_are_those_of_a_plain_loop(self):
        model = Biased(lambda m, batch: m.gathered())
        other, losses = copy.deepcopy(model), []
        take = vitune.train_step(vitune.compile(model, replace=[self.operator]), lambda model, x: model(x).square().mean(),
                                 torch.optim.SGD(model.parameters(), lr=0.1))
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        for x in (image() for _ in range(3)):
            optimizer.zero_grad()
            loss = other(x).square().mean()
            loss.backward(), optimizer.step()
            losses.append((take(x).item(), loss.item()))
        for mine, right in losses:
            self.assertAlmostEqual(mine, right, places=5)
        torch.testing.assert_close(model.table, other.table)
        self.assertEqual(len(self.calls), 1)

    def test_the_report_says_what_trains_and_what_stays(self):
        call = "scaled_dot_product_attention in windows of an image in training"
        compiled = vitune.compile(Block(), replace=[self.operator])
        step(compiled, image())
        self.assertIn(f"{call}: replaced, forward and backward", str(vitune.report(compiled)))
        torch._dynamo.reset()
        compiled = vitune.compile(Block())
        step(compiled, image())
        self.assertRegex(str(vitune.report(compiled)), f"{call}: left as it is: a gradient is wanted of it, and without a CUDA graph")


class RaceTest(WindowsCase, race_case.RaceCase):
    pattern = windows_train

    def setUp(self):
        super().setUp()
        for module, name, value in ((training, "_answer", lambda x, ours, torchs: torchs()),
                                    (every, "PATTERNS", (windows_train.windows_train,))):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_both_sides_are_the_same_function_with_the_same_gradients(self):
        both = {"proj.weight", "proj.bias", "qkv.weight", "qkv.bias"}
        cases = {"a table": (Biased(lambda m, batch: m.gathered()), image(), 2 + len(both) + 1),
                 "masks": (Biased(lambda m, batch: m.bias + m.per_window[:, :1].detach().transpose(0, 1).unsqueeze(2).expand(batch // 6, -1, 2, -1, -1)
                                  .reshape(-1, 2, 4, 4)), image(), 2 + len(both) + 1),
                 "padding": (Block(), torch.randn(2, 5, 7, 32), 2 + len(both) + 1)}
        for name, (model, x, results) in cases.items():
            for on in (False, True):  # autocast, and parameters of 16 bits
                with self.subTest(name, on=on):
                    dtype = torch.float32 if on else torch.bfloat16
                    report = self.report(model.to(dtype), x.to(dtype), on, replace=None)
                    self.assertEqual([(call.replaced, call.reason) for call in report.calls], [(True, "")])
                    (ours, theirs), = self.raced[-1:]
                    self.assertEqual(len(ours), results)
                    for mine, other in zip(ours, theirs, strict=True):
                        self.assertEqual((mine.shape, mine.dtype), (other.shape, other.dtype))
                        self.assertTrue(mine.isfinite().all() and mine.float().std() > 0.01)
                        self.assertLessEqual((mine - other).norm().item(), 0.03 * other.norm().item())
                    self.assertIn("5.0 us here, Inductor's 10.0", str(report))

    def test_inductor_compiles_both_passes_of_both_sides_inside_of_a_compilation(self):
        from torch._inductor.compile_fx import compile_fx
        with mock.patch.object(race_case.subgraph, "compile_fx", compile_fx), mock.patch.object(race_case.backend, "compile_fx", compile_fx):
            report = self.report(Biased(lambda m, batch: m.gathered()), torch.randn(2, 5, 7, 32))
        self.assertEqual([call.replaced for call in report.calls], [True], report)
        (ours, theirs), = self.raced
        for mine, other in zip(ours, theirs, strict=True):
            self.assertEqual((mine.shape, mine.dtype), (other.shape, other.dtype))
            self.assertLessEqual((mine - other).norm().item(), 0.03 * other.norm().item())

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_both_passes_of_each_kind_of_block_are_asked_and_raced_once(self):
        report = self.report(swin(depths=(4, 2)), x_of(56, 56))
        self.assertEqual([call.replaced for call in report.calls], [True] * 6)
        self.assertEqual(len(self.raced), 3)
        want = [f"window_attention{kind} bf16 b=2 image=14x14 window=7x7 {rest}{table}"
                for rest in ("h=1 d=16 bias=bf16:1x1x49x49", "shift=3x3 h=1 d=16 bias=bf16:4x1x49x49")
                for kind, table in (("", ""), ("_backward", " dtable=169"))]
        self.assertEqual(self.asked[:4], want)
        self.assertEqual([found.problem for call in report.calls[:2] for found in call.selections], want)
        report = self.report(padded_swin(), x_of(36, 28))
        self.assertEqual(self.asked[-1], "window_attention_backward bf16 b=2 image=9x7 window=4x4 shift=2x2 h=2 d=8 padding bias=bf16:6x2x16x16"
                                         " dtable=49")

    def test_what_is_slower_wrong_or_cannot_be_timed_stays(self):
        self.lost, self.outcome = {1}, "default"
        report = self.report(Block(), image())
        self.assertIn("Inductor's was faster when both were timed here, with kernels that were never tuned", report.calls[0].reason)
        self.assertEqual(report.untuned, tuple(self.asked))
        self.assertEqual(len(report.untuned), 2)
        self.lost = set()
        right = training.backward_by_torch
        with mock.patch.object(training, "backward_by_torch", lambda *given: (right(*given)[0] * 1.1, *right(*given)[1:])):
            self.assertRegex(self.report(Block(), image()).calls[0].reason, "its answers are not Inductor's: result [0-9] of 7 is off")
        with mock.patch.object(benchmark, "can_race", lambda device: False):
            self.assertIn("could not be timed", self.report(Block(), image()).calls[0].reason)

        def refused(problem, device):
            raise vitune.Unsupported(f"'{problem}': it is too large")
        with mock.patch.object(windows_train, "selected", refused):
            self.assertIn("too large", self.report(Block(), image()).calls[0].reason)
        self.assertIn("float32", self.report(Block(), image(), on=False).calls[0].reason)


@needs_device
@unittest.skipUnless(KNOWS_GRADIENTS, "the library knows no gradients of windows")
class ServedTest(WindowsCase):
    def setUp(self):
        super().setUp()
        linear_case.serve_by_nearest(self, windows_train, training, launch_staged, window_attention_ops, launch_windows_staged)

    def expect_asked(self, count, model, x, bound=3e-2, left=0):
        self.asked.clear()
        calls = self.expect_windows(count, model, x, bound, left, on=True)
        canonical = [attention_ops.context_of(0).query(vitune.Problem(text)).problem for text in self.asked]
        self.assertEqual(sorted(canonical), sorted(call.selections[1].problem for call in calls))

    def test_a_step_asks_the_library_for_what_was_asked_when_it_was_compiled(self):
        for model, x in ((Biased(lambda m, batch: m.gathered()), image()), (Block(), torch.randn(2, 5, 7, 32)),
                         (Block(pads_first=True), torch.randn(2, 5, 7, 32))):
            self.expect_asked(1, model, x)

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_whole_models_have_eager_modes_gradients(self):
        self.expect_asked(2, padded_swin(), x_of(36, 28))
        model = a_model("maxvit_tiny_rw_224", img_size=64, depths=(1,), embed_dim=(32,), stem_width=16)
        for parameter in [p for n, p in model.named_parameters() if n in ("stem.conv1.bias", "stages.0.blocks.0.conv.pre_norm.bias")]:
            parameter.requires_grad_(False)
        self.expect_asked(2, model, x_of(64, 64), 8e-2)
        self.expect_asked(1, a_model("twins_svt_small", img_size=72, depths=(2,), embed_dims=(32,), num_heads=(2,), mlp_ratios=(2,), sr_ratios=(8,),
                                     wss=(7,)), x_of(72, 72), left=1)  # attention over all of the image


if __name__ == "__main__":
    unittest.main()
