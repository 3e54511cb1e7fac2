# python/tests/test_torch_compile_linear.py -- vitune.compile() on linear layers: what is fused, the answers, weights that change, the race.
# SPDX-License-Identifier: Apache-2.0
"""As test_torch_compile.py: launches go to the emulated device, and aot_eager stands in for Inductor. Nothing can be timed there, so
that the operator is asked for by name, and its kernels count as another problem's winners."""
import copy
import dataclasses
import gc
import threading
import unittest
import weakref
from unittest import mock

import vitune

from .support import OPERATORS, needs_device, needs_torch, torch
from .test_torch_compile import CompileCase, served_by_nearest, vit, without_inductor

if torch is not None:
    import torch.nn.functional as F
    from torch import nn
    from torch._dynamo.utils import counters
    from torch._subclasses.fake_tensor import FakeTensor

    from vitune import _compile, _compile_graph, _compile_linear, _compile_prepared, _compile_race, _compile_region, _torch_linear, _torch_op

    from .test_torch_linear import launch_staged

try:
    import timm
except ImportError:
    timm = None
try:
    import transformers
except ImportError:
    transformers = None


@unittest.skipIf(OPERATORS, "linear layers are not the operators' library's: once is enough")
class LinearCase(CompileCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for op in (_torch_linear.linear_op, _torch_linear.linear_or_torch_op):
            op.register_kernel("cpu")(op._init_fn)

    def setUp(self):
        super().setUp()
        self.launched = []

        def launch(problem, tensors):
            self.launched.append(problem.text)
            launch_staged(problem, tensors)
        nearest = lambda problem, device: served_by_nearest(vitune.Problem(problem), device)  # noqa: E731
        for module, name, value in ((_torch_linear, "launch", launch), (_compile_linear, "selected", nearest)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def fused(self, model, *arguments, bound=0.03, **keywords):
        """The linear layers' calls of a report, after the answers were compared with those of the model in fp64."""
        torch._dynamo.reset()
        with torch.no_grad():
            got, report = self.compiled(model, *arguments, **{"replace": ["linear"], **keywords})
            wide = copy.deepcopy(model).double() if isinstance(model, nn.Module) else model
            want = wide(*(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments))
        self.expect_close(got.double(), want, bound)
        self.assertFalse(any(graph.error for graph in report.graphs), report)
        return [call for call in report.calls if call.operator == "linear"]

    def calls(self, *arguments, **keywords):
        return [(call.call, call.replaced) for call in self.fused(*arguments, **keywords)]


def bf16(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).bfloat16()


class Tail(nn.Module):
    """A layer and what `after` makes of its result, x and a parameter for each column."""

    def __init__(self, after, k=24, n=40, bias=True):
        super().__init__()
        self.layer, self.gamma, self.after = nn.Linear(k, n, bias=bias), nn.Parameter(torch.randn(n)), after
        self.bfloat16().eval()

    def forward(self, x, r):
        return self.after(self.layer(x), r, self.gamma)


class PatternTest(LinearCase):
    def test_what_follows_a_layer_is_its_epilogue(self):
        cases = {
            "linear and gelu": lambda y, r, g: F.gelu(y), "linear and gelu_tanh": lambda y, r, g: F.gelu(y, approximate="tanh"),
            "linear and relu": lambda y, r, g: F.relu(y, inplace=True), "linear and silu": lambda y, r, g: F.silu(y),
            "linear and quick_gelu": lambda y, r, g: y * torch.sigmoid(1.702 * y),
            "linear and residual": lambda y, r, g: r + F.dropout(y, 0.0, True),
            "linear, LayerScale and residual": lambda y, r, g: F.dropout(F.dropout(y, 0.3, False) * g, 0.1, False) + r,
            "linear and LayerScale": lambda y, r, g: g * y,
            "linear, gelu, LayerScale and residual": lambda y, r, g: torch.add(r, F.gelu(y) * g)}
        x, r = bf16(2, 5, 24), bf16(2, 5, 40)
        for name, after in cases.items():
            with self.subTest(name):
                self.assertEqual(self.calls(Tail(after), x, r), [(name, True)])
                self.assertEqual(without_inductor.calls, [torch.ops.vitune.linear_or_torch.default])

    def test_a_table_of_positions_repeats(self):
        tail = Tail(lambda y, r, g: y + r)
        self.assertEqual(self.calls(tail, bf16(3, 5, 24), bf16(1, 5, 40)), [("linear and residual", True)])
        self.assertIn("residual period=5", self.launched[-1])
        self.assertEqual(self.calls(tail, bf16(3, 5, 24), bf16(5, 40)), [("linear and residual", True)])

    def test_what_cannot_be_its_epilogue_stays(self):
        x, r = bf16(2, 5, 24), bf16(2, 5, 40)
        cases = {"of another shape": (lambda y, r, g: y + r[:, :1], x), "of one row": (lambda y, r, g: y + g, x),
                 "which grows": (lambda y, r, g: y[:1] + r, x), "used twice": (lambda y, r, g: F.gelu(y) + y, x),
                 "of itself": (lambda y, r, g: y + y, x),
                 "other slope": (lambda y, r, g: y * torch.sigmoid(1.7 * y), x), "dropout": (lambda y, r, g: F.dropout(y, 1.0, True), x)}
        for name, (after, x) in cases.items():
            with self.subTest(name):
                bound = 0.06
                self.assertEqual(self.calls(Tail(after), x, r, bound=bound)[0], ("linear", True))

    def test_a_sum_of_another_type_is_the_results(self):
        tail = Tail(lambda y, r, g: r + y * g.float())
        self.assertEqual(self.calls(tail, bf16(2, 5, 24), torch.randn(2, 5, 40)), [("linear, LayerScale and residual", True)])
        self.assertIn("params=fp32 residual out=fp32", self.launched[-1])

    def test_memory_that_changes_in_between_is_read_before(self):
        class Changed(Tail):
            def forward(self, x, r):
                x = x + 0
                y = self.layer(x)
                self.after(x)
                return F.gelu(y) + x.sum() * 0
        for change in (lambda x: x.mul_(3), lambda x: F.relu(x, True), lambda x: F.silu(x, inplace=True), lambda x: x[1:].zero_()):
            self.assertEqual(self.calls(Changed(change), bf16(4, 24), bf16(4, 40)), [("linear", True)])

    def test_products_that_addmm_writes(self):
        across, bias = bf16(24, 40, scale=0.2), bf16(40)

        def call(x):
            return F.gelu(torch.addmm(bias.to(x.dtype), x, across.to(x.dtype)))
        self.assertEqual(self.calls(call, bf16(6, 24)), [("linear and gelu", True)])
        self.assertIn(" wt", self.launched[-1])

        def scaled(x):
            return torch.addmm(bias.to(x.dtype), x, across.to(x.dtype), alpha=2)
        self.assertEqual(self.calls(scaled, bf16(6, 24), bound=0.06), [("linear", False)])

    def test_types_and_devices_without_kernels_are_told(self):
        tail = Tail(lambda y, r, g: y).float()
        self.assertIn("type float32", self.fused(tail, torch.randn(2, 24), torch.randn(2, 40))[0].reason)
        with mock.patch.object(_torch_op, "is_on_gpu", lambda tensor: False):
            self.assertEqual(self.fused(tail.bfloat16(), bf16(2, 24), bf16(2, 40))[0].reason, "device cpu")

    def test_a_gradient_keeps_it_pytorchs(self):
        tail, x, r = Tail(lambda y, r, g: F.gelu(y)), bf16(2, 24), bf16(2, 40)
        out, report = self.compiled(tail, x, r, replace=["linear"])
        self.assertEqual({call.reason for call in report.calls}, {"a gradient is wanted of it"})
        out.float().sum().backward()
        self.assertIsNotNone(tail.layer.weight.grad)
        self.assertEqual(self.launched, [])

    def test_a_call_without_a_kernel_is_pytorchs_where_the_model_runs(self):
        tail, x, r = Tail(lambda y, r, g: r + F.gelu(y) * g), bf16(2, 3, 24), bf16(2, 3, 40)
        with mock.patch.object(_torch_linear, "launch", side_effect=vitune.Unsupported("of the test")), self.assertWarns(
                vitune.torch.FallbackWarning):
            self.assertEqual(self.calls(tail, x, r), [("linear, gelu, LayerScale and residual", True)])
        self.assertEqual(vitune.torch.stats().reasons, {"of the test": 1})

    def test_another_batch_is_the_same_graph(self):
        tail = Tail(lambda y, r, g: r + y)
        compiled = vitune.compile(tail, fullgraph=True, dynamic=True, replace="linear")
        with torch.no_grad():
            for batch in (2, 3, 7):
                x, r = bf16(batch, 5, 24), bf16(batch, 5, 40)
                self.expect_close(compiled(x, r), tail(x, r))
        self.assertEqual(len(vitune.report(compiled).graphs), 1)
        self.assertEqual([text.split()[2] for text in self.launched], ["m=10", "m=15", "m=35"])


class Mlp(nn.Module):
    """A norm, a layer and an activation: all of it one call."""

    def __init__(self, k=32, n=48, norm=None, bias=True):
        super().__init__()
        self.norm, self.layer = norm or nn.LayerNorm(k), nn.Linear(k, n, bias=bias)
        for parameter in self.norm.parameters():
            nn.init.normal_(parameter, 1.0, 0.3)
        self.bfloat16().eval()

    def forward(self, x):
        return F.gelu(self.layer(self.norm(x)))


class NormTest(LinearCase):
    def test_a_norm_is_folded_into_the_layer(self):
        x = bf16(2, 5, 32) * 2 + 3
        for norm, name in ((nn.LayerNorm(32), "layer_norm"), (nn.LayerNorm(32, bias=False), "layer_norm"),
                           (nn.LayerNorm(32, elementwise_affine=False), "layer_norm"), (nn.RMSNorm(32), "rms_norm"),
                           (nn.RMSNorm(32, eps=1e-3), "rms_norm")):
            for bias in (True, False):
                with self.subTest(name, norm=norm, bias=bias):
                    self.assertEqual(self.calls(Mlp(norm=norm, bias=bias), x, bound=0.05), [(f"{name}, linear and gelu", True)])
                    self.assertIn(f"norm={name.removesuffix('_norm')} bias act=gelu params=fp32", self.launched[-1])
                    self.assertFalse({F.layer_norm, F.linear, F.gelu} & set(without_inductor.calls))

    def test_a_bias_that_is_made_at_every_call_is_added_to_what_is_folded(self):
        class Halves(Mlp):
            def __init__(self):
                super().__init__()
                self.part = nn.Parameter(bf16(24))

            def forward(self, x):
                return F.linear(self.norm(x), self.layer.weight, torch.cat([self.part, torch.zeros_like(self.part)]))
        model, x = Halves(), bf16(2, 5, 32)
        self.assertEqual(self.calls(model, x, bound=0.05), [("layer_norm and linear", True)])

    def test_a_norm_of_other_use_is_not(self):
        class Shared(Mlp):
            def forward(self, x):
                y = self.norm(x)
                return self.layer(y).sum(-1, keepdim=True) + y
        self.assertEqual(self.calls(Shared(), bf16(2, 5, 32), bound=0.2), [("linear", True)])

    def test_weights_that_are_no_parameters_are_not_folded(self):
        weight = bf16(48, 32, scale=0.2)

        def call(x, weight):
            return F.linear(F.layer_norm(x, (32,)), weight)
        call_ = self.fused(call, bf16(3, 32), weight)[0]
        self.assertEqual((call_.call, call_.tried[0].call, call_.tried[0].reason),
                         ("linear", "layer_norm and linear", "its weights are no parameters of the model"))

    def test_parameters_without_versions_are_not_folded(self):
        with torch.inference_mode():
            model, x = Mlp(), bf16(3, 32)
            torch._dynamo.reset()
            got, report = self.compiled(model, x, replace=["linear"])
            self.expect_close(got, model(x), 0.05)
        call = next(call for call in report.calls if call.operator == "linear")
        self.assertEqual((call.call, call.tried[0].reason[:30]), ("linear and gelu", "its parameters were made in in"))

    def test_a_model_that_changes_its_own_weights_is_not_folded(self):
        class Restless(Mlp):
            def forward(self, x):
                self.layer.weight.mul_(1.5)
                return super().forward(x)
        model, x = Restless(), bf16(3, 32)
        with torch.no_grad():
            compiled = vitune.compile(model, fullgraph=True, replace="linear")
            for _ in range(2):
                got = compiled(x)
                self.expect_close(got, Mlp.forward(model, x), 0.05)
        call = vitune.report(compiled).calls[1]
        self.assertIn("changes its parameters", (call.tried or (call,))[0].reason)

    def test_a_graph_that_cannot_be_traced_has_nothing_prepared(self):
        model, x = Mlp(), bf16(3, 32)
        with torch.no_grad(), mock.patch.object(_compile_graph.Layouts, "check", side_effect=RuntimeError("of the test")):
            compiled = vitune.compile(model, fullgraph=True, replace="linear")
            self.expect_close(compiled(x), model(x))
        graph, = vitune.report(compiled).graphs
        self.assertIn("of the test", graph.error)
        self.assertFalse(any(call.replaced for call in graph.calls))
        self.assertEqual((self.launched, _compile._backends[compiled].store._made), ([], {}))

    def test_a_layer_under_autocast_is_of_autocasts_type(self):
        model, x, r = Tail(lambda y, r, g: r + y * g).float(), torch.randn(2, 5, 24), torch.randn(2, 5, 40)
        def answer(call):  # autocast itself keeps what it cast until it ends
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                return call(x, r)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            want = model(x, r)
            got, report = self.compiled(model, x, r, replace=["linear"])
            self.assertEqual([(call.call, call.replaced) for call in report.calls], [("linear, LayerScale and residual (autocast)", True)])
            self.expect_close(got, want)
            self.assertEqual(self.launched[-1], "linear bf16 m=10 n=40 k=24 bias scale params=fp32 residual out=fp32")
            self.assertNotIn("to", [node for node in without_inductor.calls if isinstance(node, str)])
        compiled = vitune.compile(model, replace="linear")
        for factor in (1, -1, 2):
            with torch.no_grad():
                model.layer.weight.mul_(factor)
            self.expect_close(answer(compiled), answer(model))


class ChangedWeightsTest(LinearCase):
    """A folded weight that is stale is a wrong answer."""

    def setUp(self):
        super().setUp()
        self.model, self.x = Mlp(), bf16(2, 5, 32)
        self.compiled_model = vitune.compile(self.model, fullgraph=True, replace="linear")
        self.made = []
        fold = _torch_linear.fold_norm

        def counted(weight, *others):
            if not isinstance(weight, FakeTensor):
                self.made.append(weight)
            return fold(weight, *others)
        patch = mock.patch.object(_torch_linear, "fold_norm", counted)
        patch.start()
        self.addCleanup(patch.stop)
        self.expect_right()
        self.made.clear()

    def expect_right(self):
        with torch.no_grad():
            torch.testing.assert_close(self.compiled_model(self.x), self.model(self.x), atol=0.06, rtol=0.06)

    def prepared(self):
        store = _compile._backends[self.compiled_model].store
        return [tensor.data_ptr() for made in store._made.values() for tensor in made.tensors]

    def test_nothing_is_made_again_where_nothing_changed(self):
        for _ in range(3):
            self.expect_right()
        self.assertEqual(self.made, [])

    def test_changes_in_place_are_seen_and_made_into_the_same_memory(self):
        model, before = self.model, self.prepared()
        other = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

        def train():
            with torch.enable_grad():
                model(self.x).float().square().sum().backward()
            optimizer.step()

        def foreach():
            torch._foreach_lerp_(list(model.parameters()), [torch.randn_like(p) for p in model.parameters()], 0.5)
        changes = {"state": lambda: model.load_state_dict(Mlp().state_dict()), "step": train, "foreach": foreach,
                   "detached": lambda: model.layer.weight.detach().mul_(-1), "a view": lambda: model.layer.weight[3:9].zero_(),
                   "norm's weight": lambda: model.norm.weight.mul_(3), "norm's bias": lambda: model.norm.bias.add_(2),
                   "bias": lambda: nn.init.normal_(model.layer.bias), "init": lambda: nn.init.normal_(model.layer.weight),
                   "ema": lambda: [p.copy_(q) for p, q in zip(model.parameters(), other.parameters())],
                   "vector": lambda: nn.utils.vector_to_parameters(torch.randn(32 * 48 + 48 + 64).bfloat16(), model.parameters())}
        for name, change in changes.items():
            with self.subTest(name):
                with torch.no_grad():
                    stale = self.compiled_model(self.x)
                    change()
                    self.assertGreater((model(self.x) - stale).abs().max(), 0.1)  # else nothing is shown
                self.made.clear()
                self.expect_right()
                self.expect_right()
                self.assertEqual(len(self.made), 1)
                if name != "vector":  # which gives the parameters other memory
                    self.assertEqual(self.prepared(), before)

    def test_steps_of_optimizers_that_count_no_version_up_are_seen(self):
        class Unseen(torch.optim.Optimizer):  # as those of other packages, whose kernels write
            def __init__(self, parameters):
                super().__init__(parameters, {})

            def step(self, closure=None):
                for parameter in self.param_groups[0]["params"]:
                    parameter.data.sub_(parameter.grad)
        before = self.prepared()
        for name, optimizer in {"fused": torch.optim.AdamW(self.model.parameters(), lr=0.2, fused=True),
                                "of others": Unseen(self.model.parameters())}.items():
            for step in (optimizer.step, torch.compile(optimizer.step, backend="aot_eager")):
                with self.subTest(name, compiled=step != optimizer.step):
                    self.model(self.x).float().square().mean().backward()
                    with torch.no_grad():
                        stale = self.compiled_model(self.x)
                    version = self.model.layer.weight._version
                    step()
                    if step == optimizer.step:  # else nothing is shown; a compiler may count
                        self.assertEqual(self.model.layer.weight._version, version)
                    self.assertGreater((self.model(self.x) - stale).abs().max(), 0.05)
                    self.expect_right()
        self.assertEqual(self.prepared(), before)
        other = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=1.0)
        self.made.clear()
        other.step()
        self.expect_right()
        self.assertEqual(self.made, [])

    def test_other_memory_and_other_parameters_are_seen(self):
        model = self.model
        for name, change in {
                "assigned data": lambda: setattr(model.layer.weight, "data", bf16(48, 32)),
                "a new parameter": lambda: setattr(model.layer, "weight", nn.Parameter(bf16(48, 32))),
                "a new layer": lambda: setattr(model, "layer", nn.Linear(32, 48).bfloat16()),
                "an assigned state": lambda: model.load_state_dict(Mlp().state_dict(), assign=True)}.items():
            with self.subTest(name), torch.no_grad():
                stale = self.compiled_model(self.x)
                change()
                self.assertGreater((model(self.x) - stale).abs().max(), 0.1)
                self.expect_right()
        gc.collect()
        self.expect_right()

    def test_memory_at_the_same_address_is_not_the_same(self):
        weight = self.model.layer.weight
        stamp = _compile_prepared._Stamp([weight])
        self.assertTrue(stamp.fits([weight]))
        address, version = weight.data_ptr(), weight._version
        weight.data = bf16(48, 32)  # and what was there is freed
        with mock.patch.object(type(weight), "data_ptr", lambda self: address):
            self.assertEqual(weight._version, version)
            self.assertFalse(stamp.fits([weight]))

    def test_what_counts_nothing_up_is_for_refresh(self):
        before = self.prepared()
        self.model.layer.weight.data.mul_(-2)
        vitune.refresh(self.compiled_model)
        self.expect_right()
        self.assertEqual((self.prepared(), len(self.made)), (before, 1))
        with self.assertRaisesRegex(vitune.InvalidArgument, "refresh\\(\\) takes what vitune.compile"):
            vitune.refresh(self.model)

    def test_who_wants_no_second_form_has_none(self):
        compiled = vitune.compile(self.model, replace="linear", prepared_weights=False)
        with torch.no_grad():
            for _ in range(2):
                self.expect_close(compiled(self.x), self.model(self.x), 0.06)
                self.model.layer.weight.data.mul_(-2)
        call = vitune.report(compiled).calls[1]
        self.assertEqual((call.call, call.replaced), ("linear and gelu", True))
        self.assertIn("prepared_weights=False", call.tried[0].reason)

    def test_graphs_of_other_sizes_share_what_was_made(self):
        before = self.prepared()
        self.x = bf16(7, 32)
        self.expect_right()
        graphs = vitune.report(self.compiled_model).graphs
        self.assertEqual((len(graphs), graphs[0].inputs), (2, "[2, 5, 32]"))
        self.assertEqual((self.made, self.prepared()), ([], before))
        with torch.no_grad():
            self.model.norm.weight.mul_(-1)
        for self.x in (self.x, bf16(2, 5, 32)):
            self.expect_right()
        self.assertEqual(len(self.made), 1)

    def test_one_graph_of_several_layers_keeps_each_ones(self):
        models = [Mlp() for _ in range(3)]

        def call(model, x):
            return model(x)
        compiled = vitune.compile(call, fullgraph=True, replace="linear")
        with torch.no_grad():
            for _ in range(2):
                for model in models:
                    self.expect_close(compiled(model, self.x), model(self.x), 0.06)
        self.assertEqual(len(self.made), 3)
        models[1].layer.weight.detach().neg_()
        with torch.no_grad():
            for model in models:
                self.expect_close(compiled(model, self.x), model(self.x), 0.06)
        self.assertEqual(len(self.made), 4)

    def test_a_model_that_goes_takes_it_along(self):
        models = [Mlp(), Mlp()]
        compiled = vitune.compile(lambda model, x: model(x), fullgraph=True, replace="linear")
        with torch.no_grad():
            for model in models:
                compiled(model, self.x)
            store = _compile._backends[compiled].store
            gone = weakref.ref(next(made for made in store._made.values() if made.is_of([
                models[0].layer.weight, models[0].layer.bias, models[0].norm.weight, models[0].norm.bias])).tensors[0])
            del models[0], model
            gc.collect()
            compiled(Mlp(), self.x)
            gc.collect()
        self.assertIsNone(gone())

    def test_a_capture_is_refused_what_it_would_keep_uncomputed(self):
        with torch.no_grad():
            self.model.layer.weight.mul_(2)
            with mock.patch.object(_compile_prepared, "_is_capturing", lambda device: True):
                with self.assertRaisesRegex(vitune.NotPrepared, "call it once before you capture"):
                    self.compiled_model(self.x)
        self.expect_right()

    def test_threads_see_one_change_once(self):
        with torch.no_grad():
            self.model.layer.weight.mul_(-1)
        errors = []

        def work():
            try:
                self.expect_right()
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((errors, len(self.made)), ([], 1))

    def test_training_between_calls_is_pytorchs(self):
        out = self.compiled_model(self.x)  # gradients are on here
        self.assertTrue(out.requires_grad)
        self.expect_right()
        self.assertEqual(self.made, [])


@unittest.skipIf(timm is None, "timm is not installed")
class ModelTest(LinearCase):
    def count(self, model, x, bound=0.06, **keywords):
        found = {}
        for call in self.fused(model, x, bound=bound, **keywords):
            self.assertTrue(call.replaced, call)
            found[call.call] = found.get(call.call, 0) + 1
        return found

    def test_a_vit(self):
        found = self.count(vit().bfloat16(), bf16(2, 3, 32, 32))
        self.assertEqual(found, {"patch embedding": 1, "layer_norm and linear": 2, "linear and residual": 4,
                                 "layer_norm, linear and gelu": 2, "linear": 1})
        self.assertFalse({F.linear, F.gelu, torch.conv2d} & set(without_inductor.calls))
        self.assertEqual(without_inductor.calls.count(F.layer_norm), 1)  # before the head, of class tokens alone

    def test_tokens_without_a_class_are_laid_out_once(self):
        model = vit(class_token=False, global_pool="avg").bfloat16()
        modules = []

        def keep(module, inputs, config_patches=None):
            modules.append(module)
            return without_inductor(module, inputs, config_patches)
        with mock.patch.object(_compile, "compile_fx", keep):
            calls = self.fused(model, bf16(2, 3, 32, 32), bound=0.06)
        self.assertTrue(all(call.replaced for call in calls), calls)
        ours = [node for node in modules[0].graph.nodes if node.target is torch.ops.vitune.linear_or_torch.default]
        operands = [_compile_graph.value_of(operand) for node in ours for operand in (node.args[0], node.args[4]) if operand is not None]
        self.assertGreater(len(operands), len(ours))
        self.assertEqual({value.stride(-1) for value in operands}, {1})
        with mock.patch.object(_compile, "compile_fx", keep), torch.no_grad():
            torch._dynamo.reset()
            self.compiled(model, bf16(2, 3, 32, 32), replace=[])
        self.assertNotIn("contiguous", [node.target for node in modules[1].graph.nodes])

    def test_dinov2_has_layer_scale(self):
        model = timm.create_model("vit_small_patch14_dinov2", img_size=28, depth=2, init_values=0.5).eval()
        found = self.count(model.bfloat16(), bf16(2, 3, 28, 28))
        self.assertEqual(found, {"patch embedding": 1, "layer_norm and linear": 2, "linear, LayerScale and residual": 4,
                                 "layer_norm, linear and gelu": 2})

    def test_a_position_embedding_of_the_patches_alone(self):
        model = timm.create_model("deit3_small_patch16_224", img_size=32, depth=1).eval()
        found = self.count(model.bfloat16(), bf16(2, 3, 32, 32))
        self.assertEqual(found["patch embedding and residual"], 1)
        self.assertIn("linear bf16 m=8 n=384 k=768 bias residual period=4", self.launched)

    def test_beit_makes_its_bias_of_two(self):
        model = timm.create_model("beit_base_patch16_224", img_size=32, embed_dim=64, depth=1, num_heads=1).eval()
        for parameter in (model.blocks[0].attn.q_bias, model.blocks[0].attn.v_bias):
            nn.init.normal_(parameter)
        found = self.count(model.bfloat16(), bf16(2, 3, 32, 32))
        self.assertEqual(found, {"patch embedding": 1, "layer_norm and linear": 1, "linear, LayerScale and residual": 2,
                                 "layer_norm, linear and gelu": 1, "linear": 1})

    def test_swins_blocks(self):
        model = timm.create_model("swin_tiny_patch4_window7_224", img_size=56, depths=(2, 1), embed_dim=32, num_heads=(1, 2)).eval()
        found = self.count(model.bfloat16(), bf16(2, 3, 56, 56))
        self.assertEqual(found, {"patch embedding": 1, "linear": 7, "layer_norm, linear and gelu": 3, "linear and residual": 3,
                                 "layer_norm and linear": 1})  # the last one merges patches

    @unittest.skipIf(transformers is None, "transformers is not installed")
    def test_a_vit_of_transformers(self):
        config = transformers.ViTConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, image_size=32)
        model = transformers.ViTModel(config, add_pooling_layer=False).eval().bfloat16()

        class Answer(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, x):
                return self.model(x).last_hidden_state
        found = self.count(Answer(), bf16(2, 3, 32, 32))
        self.assertEqual(found, {"patch embedding": 1, "linear": 6, "linear and residual": 4, "layer_norm, linear and gelu": 2})

    def test_a_model_under_autocast(self):
        model, x = vit(), torch.randn(2, 3, 32, 32)
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            want = model(x)
            got, report = self.compiled(model, x, replace=["linear"])
        self.expect_close(got, want)
        calls = [call for call in report.calls if call.operator == "linear"]
        self.assertEqual([call.call for call in calls if not call.replaced], [])
        self.assertEqual(sum(call.call == "linear and gelu (autocast)" for call in calls), 2)
        self.assertEqual(report.graphs[0].error, "")

    def test_attention_is_replaced_beside_it(self):
        model, x = vit().bfloat16(), bf16(2, 3, 32, 32)
        with torch.no_grad():
            got, report = self.compiled(model, x, replace=["linear", "attention"])
            self.expect_close(got, model(x), 0.06)
        self.assertEqual(sum(call.replaced for call in report.calls if call.operator == "attention"), 2)


class InductorTest(LinearCase):
    """With Inductor itself."""

    def setUp(self):
        super().setUp()
        from torch._inductor.compile_fx import compile_fx

        _compile.compile_fx = compile_fx  # its patch ends with the test
        counters.clear()

    def hits(self):
        return counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]

    def test_prepared_weights_are_inputs_that_inductors_cache_knows(self):
        x = bf16(2, 5, 32)
        nearest = _compile_linear.selected
        # Of a kernel that is compiled at its first call no key is known before.
        selected = mock.patch.object(_compile_linear, "selected", lambda *a: dataclasses.replace(nearest(*a), kernel_key="test"))
        with torch.no_grad(), selected, torch._inductor.utils.fresh_cache(), torch._inductor.config.patch(fx_graph_cache=True):
            for model in (Mlp(), Mlp()):
                torch._dynamo.reset()
                counters.clear()
                compiled = vitune.compile(model, fullgraph=True, replace="linear")
                self.expect_close(compiled(x), model(x), 0.06)
                model.layer.weight.mul_(-1)
                self.expect_close(compiled(x), model(x), 0.06)
            self.assertEqual(len(self.launched), 4)
            self.assertGreater(self.hits(), 0)  # of the second model, which has weights of its own

    def test_they_are_static_as_parameters_are(self):
        seen = []

        def inner(module, inputs, **keywords):
            seen.append((len(inputs), list(torch._guards.TracingContext.get().fw_metadata.static_input_indices)))
            return compile_fx_inner(module, inputs, **keywords)
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner
        _compile.compile_fx = lambda module, inputs, config_patches: compile_fx(module, inputs, inner, config_patches)
        with torch.no_grad(), torch._inductor.utils.fresh_cache():
            vitune.compile(Mlp(), replace="linear")(bf16(3, 32))
        (count, static), = seen
        self.assertEqual((count, len(static)), (8, 7))  # x is not; four parameters and what was made of them are


@needs_device
@needs_torch
class RaceTest(LinearCase):
    """A race that would be on a GPU, with times of the test's own."""

    def setUp(self):
        super().setUp()
        self.raced, self.lost = [], set()
        for module, name, value in ((_compile_race, "can_race", lambda device: True), (_compile_race, "race", self.race),
                                    (_compile, "_times", {})):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def race(self, ours, theirs, device):
        self.raced.append(tuple(result if isinstance(result, torch.Tensor) else result[0] for result in (ours(), theirs())))
        return _compile_race.Times(20.0 if len(self.raced) in self.lost else 5.0, 10.0)

    def race_of(self, model, *arguments, lost=(), compile_fx=None):
        torch._dynamo.reset()
        self.raced.clear()
        _compile._times.clear()
        self.lost = set(lost)
        with torch.no_grad(), mock.patch.object(_compile_region, "compile_fx", compile_fx or without_inductor):
            _, report = self.compiled(model, *arguments)
        return next(call for call in report.calls if call.operator == "linear")

    def test_both_sides_are_the_same_function_of_finite_numbers(self):
        cases = {"epilogue": (Tail(lambda y, r, g: r + F.gelu(y) * g), bf16(2, 5, 24), bf16(2, 5, 40)),
                 "positions": (Tail(lambda y, r, g: r + y), bf16(2, 5, 24), bf16(1, 5, 40)), "plain": (Tail(lambda y, r, g: y * 1),
                                                                                                       bf16(2, 24), bf16(2, 40)),
                 "patches": (nn.Conv2d(3, 16, 4, 4).bfloat16(), bf16(2, 3, 8, 12))}
        for name, (model, *arguments) in cases.items():
            with self.subTest(name):
                call = self.race_of(model, *arguments)
                self.assertTrue(call.replaced, call)
                ours, theirs = self.raced[-1]
                self.assertTrue(ours.isfinite().all() and ours.std() > 0.05)
                self.assertEqual((ours.shape, ours.dtype), (theirs.shape, theirs.dtype))
                torch.testing.assert_close(ours, theirs, atol=0.1, rtol=0.1)
                self.assertIn("5.0 us here, Inductor's 10.0", str(call))

    def test_a_norm_of_the_sum_is_in_the_race_on_both_sides(self):
        class Before(Tail):
            def __init__(self):
                super().__init__(None)
                self.norm = nn.LayerNorm(40).bfloat16()

            def forward(self, x, r):
                total = r + self.layer(x)
                return self.norm(total) * total
        graphs = []

        def compile_fx(module, *arguments, **keywords):
            graphs.append([node.target for node in module.graph.nodes if node.op == "call_function"])
            return without_inductor(module, *arguments, **keywords)
        call = self.race_of(Before(), bf16(2, 5, 24), bf16(2, 5, 40), compile_fx=compile_fx)
        self.assertEqual((call.call, call.replaced), ("linear and residual", True))
        self.assertEqual([F.layer_norm in graph for graph in graphs], [True, True])
        torch.testing.assert_close(*self.raced[0], atol=0.1, rtol=0.1)

    def test_a_sum_before_a_folded_norm_is_in_the_race_on_both_sides(self):
        class After(Mlp):
            def forward(self, x, r):
                total = torch.add(x, r)
                return total, super().forward(total), super().forward(x)
        graphs = []

        def compile_fx(module, *arguments, **keywords):
            graphs.append([node.target for node in module.graph.nodes if node.op == "call_function"])
            return without_inductor(module, *arguments, **keywords)
        self.race_of(After(), bf16(2, 5, 32), bf16(2, 5, 32), compile_fx=compile_fx)
        # The same layer twice: what stands before its norm makes two races of it.
        self.assertEqual([torch.add in graph for graph in graphs], [True, True, False, False])
        self.assertEqual(len(self.raced), 2)
        ours, theirs = self.raced[0]
        self.assertEqual((ours.shape, ours.dtype, bool(ours.isfinite().all())), (theirs.shape, theirs.dtype, True))

    def test_weights_come_in_turn_so_that_l2_has_none_of_them(self):
        x, weight, size = bf16(4, 64), bf16(32, 64), 32 * 64 * 2
        for l2_bytes, count in ((0, 1), (size, 3), (100 * size, _compile_race.MOST_CALLS)):
            found = _compile_region.turns([x, weight, 7], [False, True, False], l2_bytes)
            self.assertEqual(len({taken[1].data_ptr() for taken in found}), count)
            self.assertTrue(all(taken[0] is x and torch.equal(taken[1], weight) and taken[2] == 7 for taken in found))
        self.assertEqual(len(_compile_region.turns([x], [False], size)), 1)

    def test_a_folded_norm_is_raced_with_its_statistics(self):
        call = self.race_of(Mlp(), bf16(2, 5, 32))
        self.assertEqual((call.call, call.replaced), ("layer_norm, linear and gelu", True))
        ours, theirs = self.raced[0]  # of weights that are not folded of one another: only what is launched can be compared
        self.assertEqual((ours.shape, ours.dtype, bool(ours.isfinite().all())), (theirs.shape, theirs.dtype, True))

    def test_the_next_smaller_one_is_tried_where_one_loses(self):
        call = self.race_of(Mlp(), bf16(2, 5, 32), lost=(1, 2))
        self.assertEqual((call.call, call.replaced), ("layer_norm and linear", True))
        self.assertEqual([(one.call, one.replaced) for one in call.tried],
                         [("layer_norm, linear and gelu", False), ("linear and gelu", False)])
        self.assertIn("Inductor's was faster when both were timed here", str(call))
        call = self.race_of(Mlp(), bf16(2, 5, 32), lost=(1, 2, 3, 4))
        self.assertEqual((call.call, call.replaced, len(call.tried)), ("layer_norm, linear and gelu", False, 3))

    def test_what_is_as_fast_is_not_worth_a_change(self):
        for ours, replaced, said in ((9.6, True, ""), (9.8, False, "Inductor's was as fast"), (10.1, False, "Inductor's was faster")):
            with mock.patch.object(_compile_race, "race", lambda *runs, us=ours: _compile_race.Times(us, 10.0)):
                call = self.race_of(Tail(lambda y, r, g: F.gelu(y)), bf16(2, 24), bf16(2, 40))
            self.assertEqual((call.call, call.replaced), ("linear and gelu", replaced))
            self.assertIn(said, call.reason)

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_every_layer_of_a_model_can_be_raced(self):
        models = {"vit": (vit(), bf16(2, 3, 32, 32)), "autocast": (vit(), torch.randn(2, 3, 32, 32)),
                  "dinov2": (timm.create_model("vit_small_patch14_dinov2", img_size=28, depth=1).eval(), bf16(2, 3, 28, 28))}
        for name, (model, x) in models.items():
            for dynamic in (None, True) if name == "vit" else (None,):
                with self.subTest(name, dynamic=dynamic), torch.autocast("cpu", torch.bfloat16, enabled=name == "autocast"):
                    torch._dynamo.reset()
                    _compile._times.clear()
                    model = model.to(x.dtype)
                    with torch.no_grad(), mock.patch.object(_compile_region, "compile_fx", without_inductor):
                        got, report = self.compiled(model, x, dynamic=dynamic)
                        self.expect_close(got, model(x), 0.06)
                    calls = [call for call in report.calls if call.operator == "linear"]
                    self.assertEqual([call for call in calls if call.times is None], [])
                    self.assertGreaterEqual(sum(call.replaced for call in calls), 5)
                    self.assertTrue(all(ours.shape == theirs.shape for ours, theirs in self.raced))

    def test_autocasts_rival_casts_its_weights(self):
        model, x, r = Tail(lambda y, r, g: F.gelu(y)).float(), torch.randn(2, 24), torch.randn(2, 40)
        with torch.autocast("cpu", torch.bfloat16):
            call = self.race_of(model, x, r)
        ours, theirs = self.raced[0]
        self.assertEqual((call.call, ours.dtype, theirs.dtype), ("linear and gelu (autocast)", torch.bfloat16, torch.bfloat16))

    def test_inductor_compiles_both_sides_inside_of_a_compilation(self):
        from torch._inductor.compile_fx import compile_fx
        compiled = []

        def counted(module, *arguments, **keywords):
            compiled.append(keywords["config_patches"])
            return compile_fx(module, *arguments, **keywords)
        call = self.race_of(Mlp(), bf16(2, 5, 32), compile_fx=counted)
        self.assertTrue(call.replaced, call)
        self.assertEqual([patches["triton.cudagraphs"] for patches in compiled], [False, False])
        self.assertEqual(len(self.raced), 1)

    def test_what_nobody_could_time_stays_as_it_is(self):
        with mock.patch.object(_compile_race, "can_race", lambda device: False):
            call = self.race_of(Mlp(), bf16(2, 5, 32))
        self.assertEqual((call.replaced, len(self.raced)), (False, 0))
        self.assertIn("replace=[..., 'linear'] puts it in all the same", call.reason)

    def test_what_was_never_tuned_is_named_one_size_at_a_time(self):
        model, x = Mlp(), bf16(2, 5, 32)
        tuned = set()

        def selected(problem, device):
            found = _torch_op.context_of(device).query(vitune.Problem(problem))
            return served_by_nearest(vitune.Problem(problem), device) if found.problem in tuned else found
        with mock.patch.object(_compile_linear, "selected", selected):
            names = []
            for _ in range(3):
                torch._dynamo.reset()
                self.lost, self.raced = {1, 2, 3}, []
                with torch.no_grad(), mock.patch.object(_compile_region, "compile_fx", without_inductor):
                    _, report = self.compiled(model, x)
                untuned = [problem for problem in report.untuned if problem.startswith("linear")]
                names += untuned
                tuned.update(untuned)
        self.assertEqual([name.split(" k=32 ")[1] for name in names],
                         ["norm=layer bias act=gelu params=fp32", "bias act=gelu", "norm=layer bias params=fp32"])


if __name__ == "__main__":
    unittest.main()
