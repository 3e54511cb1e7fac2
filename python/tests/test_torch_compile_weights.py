# python/tests/test_torch_compile_weights.py -- vitune.compile() and weights that change: what was made of them is never stale.
# SPDX-License-Identifier: Apache-2.0
import copy
import gc
import threading
import unittest
import weakref
from unittest import mock

import vitune

from .linear_cases import LinearCase, Mlp, bf16
from .support import torch

from torch import nn

from vitune._compile import backend, folded_parameters, watch


class ChangedWeightsTest(LinearCase):
    """A folded weight that is stale is a wrong answer."""

    def setUp(self):
        super().setUp()
        self.model, self.x = Mlp(), bf16(2, 5, 32)
        self.compiled_model = vitune.compile(self.model, fullgraph=True, replace="linear")
        self.made = []
        put = folded_parameters._Made._put

        def counted(made, *given):
            self.made.append(id(made))
            put(made, *given)
        patch = mock.patch.object(folded_parameters._Made, "_put", counted)
        patch.start()
        self.addCleanup(patch.stop)
        self.expect_right()
        self.made.clear()

    def expect_right(self):
        with torch.no_grad():
            torch.testing.assert_close(self.compiled_model(self.x), self.model(self.x), atol=0.06, rtol=0.06)

    def prepared(self):
        store = backend._backends[self.compiled_model].store
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

    def test_the_same_memory_by_other_strides_is_not_the_same(self):
        self.model, self.x = Mlp(n=32), bf16(2, 5, 32)
        self.compiled_model = vitune.compile(self.model, fullgraph=True, replace="linear")
        self.expect_right()
        weight = self.model.layer.weight
        weight.data = weight.data.t()
        self.expect_right()

    def test_memory_at_the_same_address_is_not_the_same(self):
        weight = self.model.layer.weight
        stamp = watch.Stamp([weight])
        self.assertTrue(stamp.fits([weight]))
        address, version = weight.data_ptr(), weight._version
        weight.data = bf16(48, 32)  # and what was there is freed
        with mock.patch.object(type(weight), "data_ptr", lambda self: address):
            self.assertEqual(weight._version, version)
            self.assertFalse(stamp.fits([weight]))

    def test_refresh_makes_everything_anew(self):
        before = self.prepared()
        self.model.layer.weight.detach().view(torch.int16).numpy()[...] ^= -32768  # of which nothing tells
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
            store = backend._backends[compiled].store
            storage = models[0].layer.weight.untyped_storage()._cdata
            gone = weakref.ref(next(made for made in store._made.values() if made._given()[0].storage.cdata == storage).tensors[0])
            del models[0], model
            gc.collect()
            compiled(Mlp(), self.x)
            gc.collect()
        self.assertIsNone(gone())

    def test_a_compiled_model_that_goes_takes_it_along(self):
        store = backend._backends[self.compiled_model].store
        prepared = [weakref.ref(tensor) for made in store._made.values() for tensor in made.tensors]
        self.assertTrue(prepared)
        del store
        self.compiled_model = None
        torch._dynamo.reset()
        gc.collect()
        self.assertEqual([ref for ref in prepared if ref() is not None], [])  # the model itself stays

    def test_another_device_gets_tensors_of_its_own(self):
        class Moved:  # of one model before and after .to()
            devices = ["meta", "cpu"]

            def make(self, weight):
                return (weight.detach().to(self.devices.pop(0)),)
        weight = self.model.layer.weight
        watch.Stamp([weight])
        made = folded_parameters._Made(Moved(), [folded_parameters._Source.of(weight)])
        made.renew(False)
        made.renew(True)
        self.assertEqual(made.tensors[0].device.type, "cpu")

    def test_weights_beyond_float16_with_the_norms_in_them_are_not_folded(self):
        model = Mlp().half().eval()
        with torch.no_grad():
            model.norm.weight[3], model.layer.weight[:, 3] = 3000, 30
            x = torch.randn(2, 5, 32).half()
            x[..., 3] = x.float().mean(-1).half()  # so that the product itself is small
            self.assertTrue(model(x).isfinite().all())
            compiled = vitune.compile(model, fullgraph=True, replace="linear")
            torch.testing.assert_close(compiled(x), model(x), atol=8, rtol=0.02)

    def test_a_capture_is_refused_what_it_would_keep_uncomputed(self):
        with torch.no_grad():
            self.model.layer.weight.mul_(2)
            with mock.patch.object(folded_parameters, "_is_capturing", lambda device: True):
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

    def test_the_backend_has_a_name(self):
        compiled = torch.compile(self.model, backend="vitune", fullgraph=True)
        with torch.no_grad():
            for _ in range(2):
                torch.testing.assert_close(compiled(self.x), self.model(self.x), atol=0.06, rtol=0.06)
                self.model.layer.weight.data.neg_()
        self.assertIn("vitune", torch._dynamo.list_backends())

    def test_training_between_calls_is_pytorchs(self):
        out = self.compiled_model(self.x)  # gradients are on here
        self.assertTrue(out.requires_grad)
        self.expect_right()
        self.assertEqual(self.made, [])


if __name__ == "__main__":
    unittest.main()
