# python/tests/test_torch_towers.py -- Vision towers that pack or pad images of differing sizes, with vitune's packed attention: transformers, timm.
# SPDX-License-Identifier: Apache-2.0
"""Their real classes with small random configs; launches go to the emulated device, tensors stay on the CPU (test_torch_packed.py)."""
import importlib
import importlib.util
import unittest
import warnings
from unittest import mock

import vitune

from .support import needs_device, needs_library, needs_torch, torch
from .test_torch_host import TorchTest

if torch is not None:
    import torch.nn.functional as F

    from vitune._dropin import packed, padding
    from vitune._ops import packed_attention as packed_ops

    from .test_torch_packed import launch_packed_staged, offsets_of, sequence_by_sequence

needs_transformers = unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
needs_timm = unittest.skipUnless(importlib.util.find_spec("timm"), "timm is not installed")

_SIZES = {"depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "patch_size": 4, "out_hidden_size": 32}
#: model -> (its folder, class, class of its config, what the config says).
TOWERS = {
    "Qwen2-VL": ("qwen2_vl", "Qwen2VisionTransformerPretrainedModel", "Qwen2VLVisionConfig",
                 {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4}),
    "Qwen2.5-VL": ("qwen2_5_vl", "Qwen2_5_VisionTransformerPretrainedModel", "Qwen2_5_VLVisionConfig",
                   {**_SIZES, "window_size": 16, "fullatt_block_indexes": [1]}),
    "Qwen3-VL": ("qwen3_vl", "Qwen3VLVisionModel", "Qwen3VLVisionConfig",
                 {**_SIZES, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]}),
    "GLM-4V": ("glm4v", "Glm4vVisionModel", "Glm4vVisionConfig", {**_SIZES, "image_size": 32}),
}
GRID = [[1, 4, 6], [1, 4, 4], [1, 4, 4]]  # an image of 24 patches and two of 16


def tower(name, attention, dtype):
    """A tower with the same random weights at each call."""
    folder, model, config, words = TOWERS[name]
    place = f"transformers.models.{folder}"
    config = getattr(importlib.import_module(f"{place}.configuration_{folder}"), config)(**words)
    kind = getattr(importlib.import_module(f"{place}.modeling_{folder}"), model)
    torch.manual_seed(3)
    return kind._from_config(config, attn_implementation=attention).to(torch.bfloat16).to(dtype).eval()


def siglip2(attention, dtype):
    from transformers import Siglip2VisionConfig, Siglip2VisionModel

    config = Siglip2VisionConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, patch_size=4,
                                 num_patches=16)
    torch.manual_seed(3)
    return Siglip2VisionModel._from_config(config, attn_implementation=attention).to(torch.bfloat16).to(dtype).eval()


@needs_library
@needs_device
@needs_torch
class PackedModels(TorchTest):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(packed_ops, "launch", launch_packed_staged)
        self.launch = patch.start()
        self.addCleanup(patch.stop)
        patch = mock.patch.object(packed_ops, "run", wraps=packed_ops.run)
        self.run_ = patch.start()
        self.addCleanup(patch.stop)
        packed_ops._plans.clear()

    def expect_as_exact(self, got, theirs, exact):
        """No further from fp64 than twice PyTorch's own answer in 16 bits, or than a rounding of the largest."""
        error, bound = ((out.double() - exact).abs().max().item() for out in (got, theirs))
        self.assertLess(error, 2 * bound + 2**-8 * exact.abs().max().item())


@needs_transformers
class TransformersTowersTest(PackedModels):
    def setUp(self):
        super().setUp()
        vitune.transformers.register()

    def answers(self, name, **words):
        patches = torch.randn(56, 3 * 2 * 4 * 4, dtype=torch.bfloat16)
        grid = torch.tensor(GRID)
        with torch.inference_mode():
            for attention, dtype in (("vitune", torch.bfloat16), ("sdpa", torch.bfloat16), ("eager", torch.float64)):
                out = tower(name, attention, dtype)(patches.to(dtype), grid, **(words if attention == "vitune" else {}))
                yield out.last_hidden_state

    def test_images_lie_side_by_side_in_one_launch_a_layer(self):
        for name in TOWERS:
            with self.subTest(name):
                self.run_.reset_mock()
                vitune.torch.reset_stats()
                self.expect_as_exact(*self.answers(name))
                self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (2, 0))
                lengths = [call.args[3].diff().tolist() for call in self.run_.call_args_list]
                self.assertEqual(lengths[1], [24, 16, 16])
                self.assertEqual(self.run_.call_args_list[1].args[5].longest_q, 24)
                self.assertEqual(len(lengths[0]) > 3, name == "Qwen2.5-VL")  # windows of 16 patches, 8 at an edge

    def test_a_bound_from_the_caller_is_taken_without_a_look_at_the_device(self):
        with mock.patch.object(torch.Tensor, "max", side_effect=AssertionError("the device was read")):
            list(self.answers("Qwen2-VL", max_seqlen=24))
        self.assertEqual(self.run_.call_args.args[5].longest_q, 24)

    def test_what_vitune_cannot_serve_is_pytorchs_by_the_same_offsets(self):
        for dtype, train in ((torch.float32, False), (torch.bfloat16, True)):
            patches = torch.randn(56, 3 * 2 * 4 * 4, dtype=dtype)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ours, theirs = (tower("Qwen2-VL", attention, dtype)(patches, torch.tensor(GRID)).last_hidden_state
                                for attention in ("vitune", "sdpa"))
            self.assertTrue(torch.equal(ours, theirs))
            self.assertEqual((self.run_.call_count, ours.requires_grad), (0, True))
        self.assertEqual(sum("derivative" in reason or "backward" in reason for reason in vitune.torch.stats().reasons), 1)

    def test_a_compiled_layer_falls_back_as_an_eager_one(self):
        packed.packed_attention_or_torch.register_kernel("cpu")(packed.packed_attention_or_torch._init_fn)
        layer = tower("Qwen2-VL", "vitune", torch.bfloat16).blocks[0].attn
        x, offsets, turn = torch.randn(9, 32).bfloat16(), offsets_of([4, 5]), tuple(torch.randn(2, 9, 16))
        torch._dynamo.reset()
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        with torch.no_grad(), mock.patch.object(packed_ops, "attention_varlen", side_effect=vitune.Unsupported("sequences=70000")):
            eager = layer(x, offsets, turn)
            self.assertTrue(torch.equal(compiled(x, offsets, turn), eager))
        self.assertEqual(vitune.torch.stats().fallbacks, 2)

    def test_a_bound_on_a_device_is_no_bound(self):
        patches = torch.randn(56, 3 * 2 * 4 * 4).bfloat16()
        with torch.no_grad():
            outs = [tower("Qwen2-VL", "vitune", torch.bfloat16)(patches, torch.tensor(GRID), max_seqlen=bound).last_hidden_state
                    for bound in (24, torch.tensor(24))]
        self.assertTrue(torch.equal(*outs))

    def test_offsets_that_leave_rows_out_are_said_where_they_are_checked(self):
        q, k, v = (torch.randn(12, 2, 16).bfloat16() for _ in range(3))
        with torch.no_grad(), mock.patch.object(packed_ops, "checked", True):
            for numbers, says in (([0, 5, 9], "goes from 0 to 9"), ([2, 12], "goes from 2 to 12"), ([0, 7, 5, 12], "falls from 7 to 5")):
                with self.assertRaisesRegex(vitune.InvalidArgument, says):
                    packed.attend(q, k, v, packed.Offsets.handed_over(torch.tensor(numbers), None, 12, 12), 0.0, False, None)

    def test_a_compiled_layer_is_one_graph_for_any_lengths(self):
        packed.packed_attention_or_torch.register_kernel("cpu")(packed.packed_attention_or_torch._init_fn)
        layer = tower("Qwen2-VL", "vitune", torch.bfloat16).blocks[0].attn
        graphs = []

        def backend(graph, _inputs):
            graphs.append(graph)
            return graph
        torch._dynamo.reset()
        compiled = torch.compile(layer, fullgraph=True, backend=backend)
        x, turn = torch.randn(56, 32, dtype=torch.bfloat16), torch.randn(2, 56, 16)
        with torch.no_grad():
            for lengths in ([24, 16, 16], [8, 8, 40]):
                offsets = offsets_of(lengths)
                self.assertTrue(torch.allclose(compiled(x, offsets, tuple(turn)), layer(x, offsets, tuple(turn)), atol=2**-6))
        self.assertEqual(len(graphs), 1)

    def test_a_class_that_keeps_its_offsets_is_named_once(self):
        class Attention(torch.nn.Module):
            def forward(self, x, cu_seqlens):
                return vitune.transformers.attention(self, x, x, x, None, is_causal=False)[0]
        x = torch.randn(1, 2, 8, 16, dtype=torch.bfloat16)
        with torch.no_grad(), self.assertWarnsRegex(vitune.torch.FallbackWarning, "hands no offsets over"):
            Attention()(x, offsets_of([8]))
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error")
            Attention.forward(Attention(), x, offsets_of([8]))

    def test_other_implementations_are_asked_as_before(self):
        from transformers.models.qwen2_vl import modeling_qwen2_vl as module

        for attention, wanted in (("vitune", True), ("sdpa", False), ("eager", False)):
            self.assertEqual(module.is_flash_attention_requested(tower("Qwen2-VL", attention, torch.float32).config), wanted)
        self.assertTrue(module.is_flash_attention_requested(requested_attention_implementation="flash_attention_2"))
        self.assertFalse(module.is_flash_attention_requested(requested_attention_implementation="vitune"))

    def pixels(self, lengths):
        valid = torch.arange(16)[None, :] < torch.tensor(lengths)[:, None]
        return torch.randn(len(lengths), 16, 3 * 4 * 4, dtype=torch.bfloat16), valid.int(), torch.tensor([[2, n // 2] for n in lengths])

    def test_siglip2_has_sequences_in_the_place_of_a_mask(self):
        pixels, valid, shapes = self.pixels([16, 6, 8])
        with torch.inference_mode():
            outs = [siglip2(attention, dtype)(pixels.to(dtype), valid, shapes)
                    for attention, dtype in (("vitune", torch.bfloat16), ("sdpa", torch.bfloat16), ("eager", torch.float64))]
        self.expect_as_exact(*(out.pooler_output for out in outs))
        self.expect_as_exact(*(out.last_hidden_state[valid.bool()] for out in outs))
        self.assertTrue(outs[0].last_hidden_state.isfinite().all())
        self.assertEqual([call.args[3].diff().tolist() for call in self.run_.call_args_list], [[16, 0, 6, 10, 8, 8]] * 2)

    def test_layers_of_siglip2_that_are_compiled_have_a_mask(self):
        pixels, valid, shapes = self.pixels([16, 6])
        model = siglip2("vitune", torch.bfloat16)
        with torch.inference_mode():
            want = model(pixels, valid, shapes).pooler_output
            self.run_.reset_mock()
            for layer in model.encoder.layers:
                layer.forward = torch.compile(layer.forward, backend="eager", fullgraph=True)
            torch._dynamo.reset()
            got = model(pixels, valid, shapes).pooler_output
        self.assertEqual(self.run_.call_count, 0)
        torch.testing.assert_close(got, want, atol=0.05, rtol=0.05)

    def test_siglip2_whose_padding_is_not_at_the_end_keeps_its_mask(self):
        pixels, valid, shapes = self.pixels([16, 6])
        valid = valid.flip(1)
        with torch.inference_mode():
            ours, theirs = (siglip2(attention, torch.bfloat16)(pixels, valid, shapes).last_hidden_state
                            for attention in ("vitune", "sdpa"))
        self.assertEqual(self.run_.call_count, 0)
        torch.testing.assert_close(ours, theirs, atol=0.05, rtol=0.05)


class PaddingMaskTest(PackedModels):
    def mask(self, lengths, rows=8):
        valid = torch.arange(rows)[None, :] < torch.tensor(lengths)[:, None]
        return padding.masked(valid, lambda: valid[:, None, None, :].expand(-1, 1, rows, -1).contiguous())

    def test_nothing_padded_is_no_mask_and_holes_are_a_plain_one(self):
        self.assertIsNone(self.mask([8, 8]))
        valid = torch.tensor([[True, False, True]])
        self.assertIs(type(padding.masked(valid, lambda: valid)), torch.Tensor)
        self.assertIs(type(self.mask([8, 3])), padding.PaddingMask)

    def test_whoever_reaches_its_memory_makes_it_a_plain_mask(self):
        q = torch.randn(2, 8, 3, 2, 16, dtype=torch.bfloat16).permute(2, 0, 3, 1, 4)
        for touch in (lambda mask: mask[0].fill_(True), lambda mask: mask.data, lambda mask: torch.logical_not(mask, out=mask),
                      lambda mask: mask.view(-1), lambda mask: torch.stack([mask, mask])):
            mask = self.mask([8, 3])
            self.assertEqual((tuple(mask.shape), mask.dtype, mask.dim()), ((2, 1, 8, 8), torch.bool, 4))
            self.assertIsNotNone(mask.offsets)
            touch(mask)
            self.assertIsNone(mask.offsets)
            with torch.no_grad():
                self.assertIsNone(padding.attend(*q, mask, 0.0, None))

    def test_rows_that_would_be_copied_keep_the_mask(self):
        mask = self.mask([8, 3])
        folded, apart = torch.randn(2, 8, 2, 16, dtype=torch.bfloat16).transpose(1, 2), torch.randn(2, 2, 8, 16, dtype=torch.bfloat16)
        with torch.no_grad():
            self.assertIsNone(padding.attend(apart, folded, folded, mask, 0.0, None))
            self.assertIsNotNone(padding.attend(folded, folded, folded, mask, 0.0, None))


@needs_timm
class NaFlexTest(PackedModels):
    def model(self, dtype, **words):
        import timm

        torch.manual_seed(3)
        model = timm.models.naflexvit.NaFlexVit(timm.models.naflexvit.NaFlexVitCfg(
            patch_size=4, embed_dim=32, depth=2, num_heads=2, class_token=True, global_pool="avg", **words), num_classes=5)
        return model.to(torch.bfloat16).to(dtype).eval()

    def inputs(self, lengths, dtype):
        torch.manual_seed(4)
        rows = torch.arange(15)
        return {"patches": torch.randn(len(lengths), 15, 48).to(torch.bfloat16).to(dtype),
                "patch_coord": torch.stack([rows // 4, rows % 4], -1).expand(len(lengths), -1, -1),
                "patch_valid": rows[None, :] < torch.tensor(lengths)[:, None]}

    def test_padded_images_are_sequences_while_timm_is_installed(self):
        for words in ({}, {"use_key_only_attn_mask": True}):
            with self.subTest(**words), torch.inference_mode():
                self.run_.reset_mock()
                exact = self.model(torch.float64, **words)(self.inputs([15, 4], torch.float64))
                theirs = self.model(torch.bfloat16, **words)(self.inputs([15, 4], torch.bfloat16))
                with vitune.torch.enabled(timm=True):
                    ours = self.model(torch.bfloat16, **words)(self.inputs([15, 4], torch.bfloat16))
                self.assertEqual([call.args[3].diff().tolist() for call in self.run_.call_args_list], [[16, 0, 5, 11]] * 2)
                self.expect_as_exact(ours, theirs, exact)

    def test_a_batch_without_padding_has_no_mask_and_afterwards_all_is_timms(self):
        import timm

        theirs = timm.models.naflexvit.create_attention_mask
        valid = torch.ones(2, 15, dtype=torch.bool)
        with vitune.torch.enabled(timm=True):
            self.assertIsNone(timm.models.naflexvit.create_attention_mask(valid, 1))
            kept = timm.models.naflexvit.create_attention_mask(valid.tril(), 1, dtype=torch.bfloat16)
        self.assertIs(timm.models.naflexvit.create_attention_mask, theirs)
        self.assertIs(type(timm.models.naflexvit.create_attention_mask(valid.tril(), 1)), torch.Tensor)
        q = torch.randn(2, 16, 2, 16, dtype=torch.bfloat16).transpose(1, 2)
        with torch.no_grad():  # a mask that outlives it is a mask
            self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, q, q, kept), F.scaled_dot_product_attention(q, q, q, kept.plain)))
        self.assertEqual(self.run_.call_count, 0)


    def test_masks_of_others_than_a_batchs_own_rows_stay_what_they_are(self):
        import timm.models.naflexvit
        valid = torch.arange(16)[None] < torch.tensor([[11], [6]])
        q, k, v = (torch.randn(2, 16, 2, 16).bfloat16().transpose(1, 2) for _ in range(3))
        with vitune.torch.enabled(timm=True), torch.no_grad():
            create = timm.models.naflexvit.create_attention_mask
            self.assertIs(type(create(valid, 0, symmetric=False, q_len=16)), torch.Tensor)
            mask = create(valid, 0, dtype=torch.bfloat16)
            self.assertIs(type(mask), padding.PaddingMask)
            for key, value in ((k[:1], v[:1]), (k, v[:1])):  # of a batch of one
                self.assertTrue(torch.equal(F.scaled_dot_product_attention(q, key, value, mask),
                                            F.scaled_dot_product_attention(q, key, value, mask.plain)))
            self.assertEqual(F.scaled_dot_product_attention(q[None], k[None], v[None], mask).shape, (1, *q.shape))
            self.assertEqual(self.run_.call_count, 0)
            with mock.patch.object(padding, "may_look", return_value=False):  # a CUDA graph is captured, whose mask may be written to
                F.scaled_dot_product_attention(q, k, v, mask)
            self.assertEqual(self.run_.call_count, 0)
            F.scaled_dot_product_attention(q, k, v, mask)
            self.assertEqual(self.run_.call_count, 1)


class OneByOneTest(PackedModels):
    def test_pytorch_answers_as_the_kernels_do(self):
        lengths, keys = [3, 0, 9], [7, 2, 9]
        q, k, v = (torch.randn(sum(of), heads, 16, dtype=torch.bfloat16) for of, heads in ((lengths, 4), (keys, 2), (keys, 2)))
        offsets = packed.Offsets.handed_over(offsets_of(lengths), offsets_of(keys).long(), 16, torch.tensor(16))
        self.assertEqual((offsets.of_k.dtype, offsets.longest_q, offsets.longest_k), (torch.int32, 16, None))
        for causal in (False, True):
            want = sequence_by_sequence(q, k, v, lengths, keys, causal, 0.3)[0]
            with torch.no_grad():
                for attend in (packed.attend, packed.one_by_one):
                    got = attend(q, k, v, offsets, 0.0, causal, 0.3)
                    self.assertLess((got.double() - want).abs().max().item(), 0.03)


if __name__ == "__main__":
    unittest.main()
