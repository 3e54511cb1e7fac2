# python/tests/test_torch_install.py -- install(), uninstall() and enabled(): who is served, what it costs, what is left.
# SPDX-License-Identifier: Apache-2.0
import functools
import gc
import sys
import threading
import types
import unittest

import vitune

from .support import OPERATORS, needs_device, needs_torch, torch
from .test_torch_host import TorchTest

if torch is not None:
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as bound_before

    from vitune._dropin import sdpa as sdpa_dropin
    from vitune._ops import originals

    from .torch_cases import Block

try:
    import timm
except ImportError:
    timm = None
try:
    import transformers
except ImportError:
    transformers = None


def frames(call):
    """Python functions entered by a call; of vitune the outermost alone, by the name "vitune"."""
    entered, inside = [], 0

    def count(frame, event, _argument):
        nonlocal inside
        if event == "return" and inside:
            inside -= 1
        elif event == "call":
            ours = frame.f_code.co_filename.startswith(vitune.__path__[0])
            if not inside:
                entered.append("vitune" if ours else frame.f_code.co_name)
            inside += bool(inside or ours)
    gc.collect()
    gc.disable()  # it enters functions of its own
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return entered


@needs_device
@needs_torch
class InstallTest(TorchTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(self._expect_undone)
        self.addCleanup(vitune.torch.uninstall)
        self.q = torch.randn(1, 2, 4, 16, dtype=torch.bfloat16)

    def _expect_undone(self):
        self.assertIs(F.scaled_dot_product_attention, sdpa_dropin.original)
        self.assertIs(bound_before, sdpa_dropin.original)
        self.assertIs(torch._native_multi_head_attention, originals.heads)
        self.assertIs(torch._transformer_encoder_layer_fwd, originals.encoder_layer)

    def _served(self):
        stats = vitune.torch.stats()
        vitune.torch.reset_stats()
        return stats.served, stats.fallbacks

    def test_what_a_model_calls_beside_attention_costs_what_it_did(self):
        block, x = Block().bfloat16().eval(), torch.randn(2, 9, 32, dtype=torch.bfloat16)
        plain = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.LayerNorm(32)).bfloat16().eval()
        for model, served in ((block, 1), (plain, 0)):
            for norms in (False, True):
                entry = vitune.torch.enabled(norms=norms)
                with torch.inference_mode():
                    without = frames(lambda: model(x))
                    for form in (functools.partial(vitune.torch.install, norms=norms), entry.__enter__):
                        with self.subTest(model=type(model).__name__, norms=norms, form=form):
                            form()
                            model(x)  # makes the plan
                            vitune.torch.reset_stats()
                            entered = frames(lambda: model(x))
                            # One function of vitune's for each call, in the place of PyTorch's own where that is Python too.
                            theirs = ("layer_norm", "__get__") if norms else ()  # a switch that it reads
                            replaced = without.count("layer_norm") if norms else 0
                            self.assertEqual(entered.count("vitune"), served + replaced)
                            self.assertEqual([name for name in entered if name != "vitune"],
                                             [name for name in without if name not in theirs])
                            self.assertEqual(self._served(), (served, 0))
                    entry.__exit__()
                    vitune.torch.uninstall()

    def test_installed_until_uninstalled_in_every_thread(self):
        vitune.torch.install()
        vitune.torch.install()
        thread = threading.Thread(target=lambda: F.scaled_dot_product_attention(self.q, self.q, self.q))
        thread.start()
        thread.join()
        with vitune.torch.enabled():
            vitune.torch.uninstall()
            F.scaled_dot_product_attention(self.q, self.q, self.q)
        self.assertEqual(self._served(), (2, 0))
        F.scaled_dot_product_attention(self.q, self.q, self.q)
        vitune.torch.uninstall()
        self.assertEqual(self._served(), (0, 0))

    def test_multi_head_attention_and_encoder_layers_are_served(self):
        x = torch.randn(2, 9, 32, dtype=torch.bfloat16)
        causal = torch.nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.bfloat16)
        heads = torch.nn.MultiheadAttention(32, 2, batch_first=True).bfloat16().eval()
        layer = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).bfloat16().eval()
        first = torch.nn.TransformerEncoderLayer(32, 2, 64, activation="gelu", norm_first=True, batch_first=True).bfloat16().eval()
        for name, call in (("heads", lambda: heads(x, x, x, need_weights=False)[0]), ("layer", lambda: layer(x)),
                           ("norm first", lambda: first(x)), ("mask", lambda: layer(x, src_mask=causal))):
            with self.subTest(name), torch.no_grad():
                vitune.torch.reset_stats()
                wanted = call()
                with vitune.torch.enabled():
                    got = call()
                torch.testing.assert_close(got, wanted, atol=0.05, rtol=0.05)
                # PyTorch's fused layer takes masks of its own: it is faster than the steps apart.
                wanted = (0, 1) if name == "mask" else (1, 0)
                self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), wanted)

    def test_compiled_encoder_layers_are_served(self):
        x = torch.randn(2, 9, 32, dtype=torch.bfloat16)
        heads = torch.nn.MultiheadAttention(32, 2, batch_first=True).bfloat16().eval()
        layer = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).bfloat16().eval()
        for name, call in (("heads", lambda: heads(x, x, x, need_weights=False)[0]), ("layer", lambda: layer(x))):
            with self.subTest(name), torch.no_grad():
                torch._dynamo.reset()
                vitune.torch.reset_stats()
                wanted = call()
                compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
                compiled()  # outside of enabled(), with PyTorch's fused path
                with vitune.torch.enabled():
                    got = compiled()
                torch.testing.assert_close(got, wanted, atol=0.05, rtol=0.05)
                self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (1, 0))

    def test_enabled_may_be_nested_and_leaves_torch_as_it_was(self):
        q = torch.randn(1, 2, 4, 16, dtype=torch.bfloat16)
        once = vitune.torch.enabled()
        for _ in range(2):
            with once, vitune.torch.enabled():
                F.scaled_dot_product_attention(q, q, q)
                self.assertIsNot(torch._native_multi_head_attention, originals.heads)
        with self.assertRaises(KeyError), once:
            raise KeyError
        self.assertIs(torch._native_multi_head_attention, originals.heads)
        self.assertIs(torch._transformer_encoder_layer_fwd, originals.encoder_layer)
        F.scaled_dot_product_attention(q, q, q)
        self.assertEqual(vitune.torch.stats().served, 2)

    def test_names_bound_elsewhere_are_served_and_given_back(self):
        before = bound_before
        with vitune.torch.enabled():
            bound_before(self.q, self.q, self.q)  # this module's own name
            before(self.q, self.q, self.q)  # a local variable: nobody can know it
            meanwhile = types.ModuleType("loaded_meanwhile")
            exec("from torch.nn.functional import scaled_dot_product_attention as attend", vars(meanwhile))
            sys.modules[meanwhile.__name__] = meanwhile
            self.addCleanup(sys.modules.pop, meanwhile.__name__)
            kept = functools.partial(F.scaled_dot_product_attention, is_causal=True)
            kept(self.q, self.q, self.q)
            meanwhile.attend(self.q, self.q, self.q)
        self.assertEqual(self._served(), (3, 0))
        self.assertIs(meanwhile.attend, sdpa_dropin.original)
        kept(self.q, self.q, self.q)
        self.assertEqual(self._served(), (0, 0))
        with vitune.torch.enabled():
            meanwhile.attend(self.q, self.q, self.q)
            kept(self.q, self.q, self.q)
        self.assertEqual(self._served(), (2, 0))

    @unittest.skipIf(transformers is None, "transformers is not installed")
    def test_a_model_of_transformers_is_served(self):
        config = transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32)
        model = transformers.ViTModel(config).bfloat16().eval()
        with vitune.torch.enabled(), torch.inference_mode():
            model(torch.randn(1, 3, 32, 32, dtype=torch.bfloat16))
        self.assertEqual(self._served(), (2, 0))

    def test_what_another_put_in_place_meanwhile_stays(self):
        def theirs(*arguments):
            return vitunes(*arguments)
        with vitune.torch.enabled():
            vitunes = F.scaled_dot_product_attention
            F.scaled_dot_product_attention = theirs
        self.assertIs(F.scaled_dot_product_attention, theirs)
        theirs(self.q, self.q, self.q)
        F.scaled_dot_product_attention = sdpa_dropin.original
        self.assertEqual(self._served(), (0, 0))

    def test_modules_are_searched_when_one_was_loaded(self):
        names = vitune.torch.install_module.Names(object(), object())
        names.bind()
        before = names._places
        names.release()
        self.assertIs(names._places, before)
        sys.modules["loaded_meanwhile"] = types.ModuleType("loaded_meanwhile")
        self.addCleanup(sys.modules.pop, "loaded_meanwhile")
        names.bind()
        self.assertIsNot(names._places, before)

    def test_math_alone_gets_math(self):
        for backends, served in ((SDPBackend.MATH, 0), ([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], 1),
                                 (SDPBackend.CUDNN_ATTENTION, 1), (SDPBackend.EFFICIENT_ATTENTION, 1)):
            def inside(q):
                with sdpa_kernel(backends):
                    return F.scaled_dot_product_attention(q, q, q)

            def around(q):
                return F.scaled_dot_product_attention(q, q, q)
            torch._dynamo.reset()
            for name, call in (("eager", inside), ("compiled inside", torch.compile(around, backend="aot_eager")),
                               ("compiled with it", torch.compile(inside, backend="aot_eager"))):
                if name == "compiled inside" and OPERATORS is not None:
                    continue  # a graph with the library's operator keeps what it was compiled with
                with self.subTest(name, backends=backends), vitune.torch.enabled(), torch.no_grad():
                    if name == "compiled inside":
                        call(self.q)
                        vitune.torch.reset_stats()
                        with sdpa_kernel(backends):
                            call(self.q)
                    else:
                        call(self.q)
                    stats = vitune.torch.stats()
                    self.assertEqual((stats.served, stats.fallbacks), (served, 1 - served))
                    if not served:
                        self.assertIn("sdpa_kernel allows MATH alone", next(iter(stats.reasons)))
                    vitune.torch.reset_stats()

    def test_scripts_and_symbolic_traces_keep_pytorchs_function(self):
        def attend(q, k, v):
            return F.scaled_dot_product_attention(q, k, v)
        with vitune.torch.enabled():
            traced = torch.fx.symbolic_trace(attend)
            scripted = torch.jit.script(attend)
        for call in (traced, scripted):
            self.assertEqual(call(self.q, self.q, self.q).shape, self.q.shape)
        self.assertIn("aten::scaled_dot_product_attention", str(scripted.inlined_graph))

    def test_a_model_compiled_before_and_after_is_served_between(self):
        for dynamic in (False, True):
            torch._dynamo.reset()
            block, x = Block().bfloat16().eval(), torch.randn(2, 9, 32, dtype=torch.bfloat16)
            compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=dynamic)
            with torch.no_grad():
                compiled(x)
                self.assertEqual(self._served(), (0, 0))
                for _ in range(2):
                    vitune.torch.install()
                    compiled(x)
                    with vitune.torch.enabled():
                        compiled(x)
                    self.assertEqual(self._served(), (2, 0))
                    vitune.torch.uninstall()
                    compiled(x)
                    self.assertEqual(self._served(), (0, 0))

    def test_autocast_is_done_as_pytorch_does_it(self):
        torch.set_autocast_enabled("cuda", True)
        self.addCleanup(torch.set_autocast_enabled, "cuda", False)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        self.addCleanup(torch.set_autocast_dtype, "cuda", torch.float16)
        with vitune.torch.enabled():
            out = F.scaled_dot_product_attention(*(self.q.float(),) * 3)
        self.assertEqual(out.dtype, torch.bfloat16)
        self.assertEqual(self._served(), (1, 0))

    def test_vmap_is_pytorchs(self):
        with vitune.torch.enabled():
            torch.func.vmap(lambda x: F.scaled_dot_product_attention(x, x, x))(self.q[None])
        self.assertEqual(vitune.torch.stats().reasons, {"inside torch.func (vmap and others)": 1})

    def test_an_exported_program_asks_for_vitune(self):
        block, x = Block().bfloat16().eval(), torch.randn(2, 9, 32, dtype=torch.bfloat16)
        with vitune.torch.enabled(), torch.no_grad():
            program = torch.export.export(block, (x,))
        self.assertIn("torch.ops.vitune.attention", program.graph_module.code)


@needs_device
@needs_torch
@unittest.skipIf(timm is None, "timm is not installed")
class TimmTest(TorchTest):
    def _swin(self):
        return timm.create_model("swin_tiny_patch4_window7_224", img_size=56, window_size=7, embed_dim=32, depths=(1, 1),
                                 num_heads=(2, 4)).bfloat16().eval()

    def test_swin_is_served_where_timm_is_asked_for(self):
        made_before, x = self._swin(), torch.randn(1, 3, 56, 56, dtype=torch.bfloat16)
        attention = [m for m in made_before.modules() if hasattr(m, "fused_attn")]
        self.assertEqual([m.fused_attn for m in attention], [False, False])
        with torch.inference_mode():
            wanted = made_before(x)
            with vitune.torch.enabled(timm=True), vitune.torch.enabled(timm=True):
                got = made_before(x)
                self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (2, 0))
                self._swin()(x)
        torch.testing.assert_close(got, wanted, atol=0.1, rtol=0.1)
        self.assertEqual(vitune.torch.stats().served, 4)
        self.assertEqual([m.fused_attn for m in attention], [False, False])
        self.assertFalse(timm.layers.use_fused_attn(experimental=True))
        self.assertTrue(timm.layers.use_fused_attn())
        vitune.torch.install(timm=True)
        self.assertTrue(attention[0].fused_attn)
        vitune.torch.install()
        self.assertFalse(attention[0].fused_attn)
        vitune.torch.uninstall()
