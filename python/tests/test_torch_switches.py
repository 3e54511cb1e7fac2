# python/tests/test_torch_switches.py -- PyTorch's and transformers' own switches: the registry of flash attention, attn_implementation.
# SPDX-License-Identifier: Apache-2.0
"""With the real packages; launches go to the emulated device."""
import importlib.util
import unittest
import warnings
from unittest import mock

import vitune

from .support import needs_device, needs_torch, torch
from .test_torch_host import TorchTest

if torch is not None:
    import torch.nn.functional as F

    from vitune._dropin import flash, sdpa as sdpa_dropin, training
    from vitune._ops import attention as attention_ops, attention_training

    from .torch_cases import expect_right, packed, reference
    from .training_staged import launch_with_scratch

HAS_TRANSFORMERS = importlib.util.find_spec("transformers") is not None
NO_REGISTRY = torch is None or not hasattr(torch.nn.attention, "register_flash_attention_impl")


def models():
    """Name -> (a small model with random weights that attends by `attn`, its arguments, calls of a pass)."""
    import transformers as t

    image = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 64}
    text = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 100,
            "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2}
    pixels = {"pixel_values": torch.randn(2, 3, 32, 32, dtype=torch.bfloat16)}
    words = {"input_ids": torch.randint(3, 99, (2, 8)), "attention_mask": torch.tensor([[1] * 8, [1] * 5 + [0] * 3])}
    clip = t.CLIPConfig(vision_config=image, text_config=text, projection_dim=16)
    siglip = t.SiglipConfig(vision_config={**image, "vision_use_head": True}, text_config={**text, "projection_size": 32})
    return {"ViT": (t.ViTModel, t.ViTConfig(**image), pixels, 2), "DINOv2": (t.Dinov2Model, t.Dinov2Config(**image), pixels, 2),
            "CLIP": (t.CLIPModel, clip, {**pixels, **words}, 4), "SigLIP": (t.SiglipModel, siglip, {**pixels, **words}, 4)}


@needs_device
@needs_torch
@unittest.skipUnless(HAS_TRANSFORMERS, "transformers is not installed")
class TransformersTest(TorchTest):
    def setUp(self):
        super().setUp()
        vitune.transformers.register()

    def model(self, kind, config, attention):
        torch.manual_seed(3)
        return kind._from_config(config, attn_implementation=attention).bfloat16().eval()

    def outputs(self, model, arguments):
        out = model(**arguments)
        return [out.pooler_output] if hasattr(out, "pooler_output") else [out.image_embeds, out.text_embeds, out.logits_per_image]

    def test_models_attend_by_their_own_choice_and_answer_as_by_sdpa(self):
        for name, (kind, config, arguments, calls) in models().items():
            with self.subTest(name), torch.inference_mode():
                vitune.torch.reset_stats()
                want = self.outputs(self.model(kind, config, "sdpa"), arguments)
                self.assertEqual(vitune.torch.stats().served, 0)
                got = self.outputs(self.model(kind, config, "vitune"), arguments)
                for ours, theirs in zip(got, want):
                    torch.testing.assert_close(ours, theirs, atol=0.05, rtol=0.05)
                self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (calls, 0))

    def test_padding_and_causality_reach_the_kernel(self):
        kind, config, arguments, _ = models()["CLIP"]
        with torch.inference_mode():
            model = self.model(kind, config, "vitune")
            with mock.patch.object(sdpa_dropin, "attend", wraps=sdpa_dropin.attend) as attend:
                model.text_model(**{name: arguments[name] for name in ("input_ids", "attention_mask")})
        mask, causal = attend.call_args.args[3], attend.call_args.args[5]
        self.assertFalse(causal)  # it is in the mask
        self.assertEqual((mask.dtype, mask[1, 0, 7].tolist()), (torch.bool, [True] * 5 + [False] * 3))
        self.assertEqual(mask[0, 0, 2].tolist(), [True] * 3 + [False] * 5)

    def test_where_all_see_all_there_is_no_mask_though_transformers_made_one(self):
        # 5.17 does while a CUDA graph is captured.
        with mock.patch("transformers.masking_utils._ignore_bidirectional_mask_sdpa", lambda *_: False), torch.inference_mode():
            for name in ("ViT", "CLIP"):
                kind, config, arguments, _ = models()[name]
                masks = {}
                for attention in ("sdpa", "vitune"):
                    with mock.patch.object(F, "scaled_dot_product_attention", wraps=F.scaled_dot_product_attention) as sdpa, \
                            mock.patch.object(sdpa_dropin, "attend", wraps=sdpa_dropin.attend) as attend:
                        self.outputs(self.model(kind, config, attention), arguments)
                    calls = sdpa.call_args_list if attention == "sdpa" else attend.call_args_list
                    masks[attention] = [c.kwargs["attn_mask"] if attention == "sdpa" else c.args[3] for c in calls]
                if name == "ViT":
                    self.assertEqual([mask is None for mask in masks["sdpa"]], [False] * 2)
                    self.assertEqual(masks["vitune"], [None] * 2)
                else:  # the text's padding and causality stay
                    self.assertEqual(sum(mask is not None for mask in masks["vitune"]), 2)

    def test_a_model_whose_steps_are_not_captured_is_pytorchs(self):
        kind, config, arguments, calls = models()["ViT"]
        model = self.model(kind, config, "vitune").train()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.outputs(model, arguments)[0].float().sum().backward()
        self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (0, calls))
        grads = [weight.grad for name, weight in model.named_parameters() if "attention" in name]
        self.assertTrue(grads and all(grad is not None and grad.isfinite().all() for grad in grads))

    def test_a_model_whose_steps_are_captured_trains(self):
        kind, config, arguments, calls = models()["ViT"]
        found = {}
        for attention in ("sdpa", "vitune"):
            model = self.model(kind, config, attention).train()
            with mock.patch.object(attention_training, "launch", launch_with_scratch), \
                    mock.patch.object(training, "is_capturing", lambda: True), \
                    mock.patch.object(attention_ops, "context_of", lambda device, of=attention_ops.context_of: of(0)):
                self.outputs(model, arguments)[0].float().square().sum().backward()
            found[attention] = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (calls, 0))
        self.assertEqual(found["vitune"].keys(), found["sdpa"].keys())
        for name, grad in found["vitune"].items():
            self.assertLess((grad - found["sdpa"][name]).float().norm(), 0.05 * found["sdpa"][name].float().norm() + 1e-2, name)

    def test_compiled_it_is_one_graph(self):
        kind, config, arguments, calls = models()["ViT"]
        model = self.model(kind, config, "vitune")
        with torch.inference_mode():
            want = self.outputs(model, arguments)[0]
            vitune.torch.reset_stats()
            torch._dynamo.reset()
            got = self.outputs(torch.compile(model, backend="aot_eager", fullgraph=True), arguments)[0]
        torch.testing.assert_close(got, want, atol=0.05, rtol=0.05)
        self.assertEqual(vitune.torch.stats().served, calls)

    def test_heads_that_share_keys_and_single_queries(self):
        module = torch.nn.Module()
        q, k, v = (torch.randn(2, h, 7, 16, dtype=torch.bfloat16) for h in (4, 2, 2))
        for queries, words, causal in ((7, {}, True), (7, {"is_causal": False}, False), (1, {}, False)):
            with self.subTest(queries, **words), torch.no_grad():
                got, weights = vitune.transformers.attention(module, q[:, :, :queries], k, v, None, scaling=0.3, **words)
                want = F.scaled_dot_product_attention(q[:, :, :queries], k, v, is_causal=causal, scale=0.3, enable_gqa=True)
                self.assertIsNone(weights)
                self.assertTrue(got.is_contiguous())
                torch.testing.assert_close(got, want.transpose(1, 2), atol=0.02, rtol=0.02)
        self.assertEqual(vitune.torch.stats().served, 3)

    def test_what_only_transformers_knows_is_transformers(self):
        q, k, v = (torch.randn(2, 2, 7, 16, dtype=torch.bfloat16) for _ in range(3))
        module = torch.nn.Module()
        with torch.no_grad(), self.assertRaisesRegex(ValueError, "softcap"):
            vitune.transformers.attention(module, q, k, v, None, softcap=30.0)


@needs_device
@needs_torch
@unittest.skipIf(NO_REGISTRY, "this PyTorch has no registry of flash attention")
class FlashTest(TorchTest):
    OPERATOR = "aten::_scaled_dot_product_flash_attention"

    def test_activating_puts_ours_at_the_operator_and_restoring_takes_it_away(self):
        from torch.nn.attention import (activate_flash_attention_impl, current_flash_attention_impl, list_flash_attention_impls,
                                        restore_flash_attention_impl)
        self.assertIn("VITUNE", list_flash_attention_impls())
        try:
            before = str(torch.library.get_kernel(self.OPERATOR, "CUDA"))
        except RuntimeError:
            self.skipTest("a PyTorch without CUDA has no such kernel")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch says once that a kernel is overridden
            activate_flash_attention_impl("VITUNE")
        self.addCleanup(restore_flash_attention_impl, False)
        self.assertEqual(current_flash_attention_impl(), "VITUNE")
        self.assertIn("_dropin/flash.py", str(torch.library.get_kernel(self.OPERATOR, "CUDA")))
        restore_flash_attention_impl()
        self.assertEqual(str(torch.library.get_kernel(self.OPERATOR, "CUDA")), before)

    def handle(self):
        """Ours at the key of the CPU, where PyTorch has none; the calls that come to `theirs`."""
        asked = []

        class Theirs:
            @staticmethod
            def call_boxed(_keys, query, key, value, dropout_p, is_causal, return_debug_mask, *others, scale):
                if others:  # the backward pass, of which query is the result's gradient
                    asked.append("backward")
                    return tuple(torch.zeros_like(tensor) for tensor in (key, value, dropout_p))
                asked.append(dropout_p)
                out = F.scaled_dot_product_attention(query, key, value, is_causal=is_causal, scale=scale)
                return flash.results(query, key, out, query.new_zeros(query.shape[:-1], dtype=torch.float32))
        with mock.patch.object(torch.library, "get_kernel", lambda *_: Theirs), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            handle = flash.Handle("CPU")
        self.addCleanup(handle.remove)
        return asked

    def test_a_compiled_training_graph_has_what_its_backward_pass_reads(self):
        self.handle()

        def attend(q, k, v):
            out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False)
            return out * 1.0, lse
        q, k, v = (torch.randn(2, 3, 9, 16, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        out, lse = torch.compile(attend, backend="aot_eager", fullgraph=True)(q, k, v)
        self.assertTrue(out.requires_grad)
        _, want = reference(q.detach(), k.detach(), v.detach())
        torch.testing.assert_close(lse.detach(), want.float(), atol=1e-3, rtol=1e-3)

    def test_the_operator_gives_what_a_backward_pass_and_compilers_expect(self):
        asked = self.handle()
        operator = torch.ops.aten._scaled_dot_product_flash_attention
        contiguous = [torch.randn(2, 3, 9, 16, dtype=torch.bfloat16) for _ in range(3)]
        for q, k, v in (packed(2, 9, 3, 16, dtype=torch.bfloat16), contiguous):
            out, lse, _, _, max_q, max_k, *_ = operator(q, k, v, 0.0, True, scale=0.3)
            want, want_lse = reference(q, k, v, is_causal=True, scale=0.3)
            expect_right(self, out, want, torch.bfloat16)
            torch.testing.assert_close(lse, want_lse.float(), atol=1e-3, rtol=1e-3)
            self.assertEqual(out.stride(), torch.empty_like(q).stride())
            self.assertEqual((max_q, max_k, lse.is_contiguous()), (9, 9, True))
        self.assertEqual((vitune.torch.stats().served, asked), (2, []))

    def test_gradients_are_ours_too(self):
        asked = self.handle()
        wide = packed(2, 9, 3, 16, dtype=torch.float64)
        for causal in (False, True):
            given = [tensor.detach().bfloat16().requires_grad_() for tensor in wide]
            exact = [tensor.detach().double().requires_grad_() for tensor in given]
            with mock.patch.object(attention_training, "launch", launch_with_scratch):
                out = torch.ops.aten._scaled_dot_product_flash_attention(*given, 0.0, causal, scale=0.3)[0]
                dout = torch.randn_like(out)
                ours = torch.autograd.grad(out, given, dout)
            for mine, right in zip(ours, torch.autograd.grad(reference(*exact, is_causal=causal, scale=0.3)[0], exact, dout.double())):
                self.assertLess((mine.double() - right).norm() / right.norm(), 2**-6)
        self.assertEqual(asked, [])

    def test_gradients_that_are_not_served_are_those_of_the_kernel_that_was_there(self):
        asked = self.handle()
        given = [torch.randn(1, 1, 9, 16, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        out = torch.ops.aten._scaled_dot_product_flash_attention(*given, 0.0, False)[0]
        with mock.patch.object(training, "LONGEST", 8), self.assertWarns(vitune.torch.FallbackWarning):
            out.sum().backward()
        self.assertEqual((asked, given[0].grad.abs().sum().item()), (["backward"], 0))
        self.assertEqual(len(vitune.torch.stats().reasons), 1)

    def test_what_is_not_served_goes_to_the_kernel_that_was_there(self):
        asked = self.handle()
        operator = torch.ops.aten._scaled_dot_product_flash_attention
        q, k, v = packed(2, 9, 3, 16, dtype=torch.bfloat16)
        wide = torch.randn(1, 2, 5, 136, dtype=torch.bfloat16)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            operator(q, k, v, 0.5)
            out = operator(wide, wide, wide)[0]
        self.assertTrue(torch.equal(out, F.scaled_dot_product_attention(wide, wide, wide)))
        self.assertEqual(asked, [0.5, 0.0])
        self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (0, 2))


if __name__ == "__main__":
    unittest.main()
