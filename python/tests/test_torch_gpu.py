# python/tests/test_torch_gpu.py -- The package on a GPU: values, streams, graphs, compiled models, real models of timm.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import copy
import inspect
import os
import subprocess
import sys
import unittest

import vitune

from .support import ROOT, needs_library, needs_torch, torch

if torch is not None:
    import torch.nn.functional as F

    from torch.nn.attention import SDPBackend, sdpa_kernel

    from .torch_cases import Block, cases, expect_right, fresh, layouts, packed, reference, strides_that_matter

try:
    import timm
except ImportError:
    timm = None

HAS_GPU = torch is not None and "emulator" not in os.environ.get("LD_LIBRARY_PATH", "") and torch.cuda.is_available()
needs_gpu = unittest.skipUnless(HAS_GPU, "no GPU, or PyTorch without CUDA")
MODELS = ("vit_base_patch16_224", "beit_base_patch16_224", "swin_tiny_patch4_window7_224", "samvit_base_patch16",
          "vit_so400m_patch14_siglip_384")


@needs_library
@needs_torch
@needs_gpu
class AttentionGpuTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        vitune.torch.reset_stats()

    def test_every_kind_of_call_is_that_of_the_reference(self):
        for dtype in (torch.bfloat16, torch.float16):
            for name, (q, k, v, keywords) in cases("cuda", dtype).items():
                with self.subTest(name, dtype=dtype), torch.no_grad():
                    out, lse = vitune.attention(q, k, v, **keywords, return_lse=True)
                    wanted, wanted_lse = reference(q, k, v, **keywords)
                    expect_right(self, out, wanted, dtype)
                    torch.testing.assert_close(lse.double(), wanted_lse, atol=0.02, rtol=0.01)

    def test_the_operators_pass_opcheck(self):
        for name, (q, k, v, keywords) in cases("cuda", torch.bfloat16).items():
            words = {"attn_mask": None, "is_causal": False, "scale": None, "enable_gqa": False, **keywords}
            with self.subTest(name):
                torch.library.opcheck(torch.ops.vitune.attention.default, (q, k, v, *words.values(), False))
                torch.library.opcheck(torch.ops.vitune.attention_lse.default, (q, k, v, *words.values()))

    def test_more_windows_than_a_grid_has_rows(self):
        q, k, v = packed(70000, 16, 1, 16, device="cuda", dtype=torch.bfloat16)
        expect_right(self, vitune.attention(q, k, v), reference(q, k, v)[0], torch.bfloat16)

    def test_the_callers_stream_is_used(self):
        q, k, v = packed(8, 197, 12, 64, device="cuda", dtype=torch.bfloat16)
        wanted = reference(q, k, v)[0]
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)
            late = q + 0  # not there for a tenth of a second: another stream would read what was there before
            out = vitune.attention(late, k, v)
        side.synchronize()
        expect_right(self, out, wanted, torch.bfloat16)

    def test_a_captured_graph_replays_with_new_data(self):
        q, k, v = packed(8, 197, 12, 64, device="cuda", dtype=torch.bfloat16)
        vitune.attention(q, k, v)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = vitune.attention(q, k, v)
        for _ in range(2):
            v.normal_()
            graph.replay()
            expect_right(self, out, reference(q, k, v)[0], torch.bfloat16)

    def test_an_unprepared_problem_in_a_capture_is_not_prepared(self):
        q, k, v = packed(3, 61, 5, 40, device="cuda", dtype=torch.bfloat16)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            with self.assertRaises(vitune.NotPrepared):
                vitune.attention(q, k, v)
            out = v + 1
        graph.replay()
        torch.testing.assert_close(out, v + 1)

    def test_a_compiled_model_is_one_graph_and_may_use_cuda_graphs(self):
        block = Block(heads=12, d=64).to("cuda", torch.bfloat16).eval()
        x = torch.randn(4, 197, 768, device="cuda", dtype=torch.bfloat16)
        with torch.no_grad():
            wanted = block(x)
            for mode in ("default", "reduce-overhead"):
                torch._dynamo.reset()
                vitune.torch.reset_stats()
                compiled = torch.compile(block, fullgraph=True, mode=mode)
                with self.subTest(mode), vitune.torch.enabled():
                    for _ in range(4):
                        torch.testing.assert_close(compiled(x).clone(), wanted, atol=0.03, rtol=0.03)
                    self.assertGreaterEqual(vitune.torch.stats().served, 1)
                    self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_autocast_serves_what_torch_would_have_cast(self):
        block = Block(heads=4, d=32).cuda().eval()
        x = torch.randn(2, 50, 128, device="cuda")
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            wanted = block(x)
            with vitune.torch.enabled():
                got = block(x)
        torch.testing.assert_close(got, wanted, atol=0.03, rtol=0.03)
        self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (1, 0))

    def test_tensors_of_the_cpu_fall_back(self):
        q = torch.randn(1, 2, 4, 16, dtype=torch.bfloat16)
        with vitune.torch.enabled():
            torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q), reference(q, q, q)[0].bfloat16(), atol=0.02,
                                       rtol=0.02)
        self.assertEqual(vitune.torch.stats().reasons, {"device cpu": 1})

    def test_results_lie_as_pytorchs_whatever_backend_it_chooses(self):
        flash, efficient, cudnn, plain = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION,
                                          SDPBackend.MATH)
        priorities = {"set_priority": True} if "set_priority" in inspect.signature(sdpa_kernel).parameters else {}
        switches = {"as it comes": contextlib.nullcontext, "no cuDNN": lambda: sdpa_kernel([flash, efficient, plain]),
                    "no flash": lambda: sdpa_kernel([cudnn, efficient, plain]), "efficient": lambda: sdpa_kernel([efficient, plain]),
                    "flash": lambda: sdpa_kernel([flash, plain]), "cuDNN": lambda: sdpa_kernel([cudnn, plain]),
                    "efficient before all": lambda: sdpa_kernel([efficient, flash, cudnn, plain], **priorities)}
        chosen, compared, asked = set(), 0, 0
        for dtype in (torch.bfloat16, torch.float16):
            table = {**layouts("cuda", dtype), **{name: case for name, case in cases("cuda", dtype).items() if name != "no batch entry of v"}}
            for how, allowed in switches.items():
                for name, (q, k, v, keywords) in table.items():
                    asked += 1
                    with self.subTest(name, how=how, dtype=dtype), torch.no_grad(), allowed():
                        words = {"attn_mask": None, "is_causal": False, "scale": None, "enable_gqa": False, **keywords}
                        if words["attn_mask"] is not None and words["attn_mask"].is_floating_point():
                            words["attn_mask"] = words["attn_mask"].to(dtype)  # not every backend of PyTorch's takes another
                        try:
                            torchs = F.scaled_dot_product_attention(q, k, v, **words)
                        except RuntimeError:  # a size that the backend which PyTorch chose has no kernel for
                            continue
                        compared += 1
                        chosen.add(torch._fused_sdp_choice(q, k, v, words["attn_mask"], 0.0, words["is_causal"], scale=words["scale"],
                                                           enable_gqa=words["enable_gqa"]))
                        with vitune.torch.enabled():
                            drop_in = F.scaled_dot_product_attention(q, k, v, **words)
                        ours, (with_lse, lse) = vitune.attention(q, k, v, **words), vitune.attention(q, k, v, **words, return_lse=True)
                        for out in (drop_in, ours, with_lse):
                            self.assertEqual(strides_that_matter(out), strides_that_matter(torchs))
                            expect_right(self, out, reference(q, k, v, **words)[0], dtype)
                        self.assertTrue(lse.is_contiguous())
        self.assertGreater(compared, 0.8 * asked)
        self.assertLessEqual({plain.value, efficient.value, flash.value}, chosen)
        self.assertEqual(vitune.torch.stats().fallbacks, 0)

    def test_compiled_results_lie_as_pytorchs_and_stay_so_where_switches_change(self):
        def attend(q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v, mask)
        three = fresh(2, 3, 16, 32, device="cuda", dtype=torch.bfloat16)
        for mask in (None, torch.randn(2, 3, 16, 16, device="cuda", dtype=torch.bfloat16)):
            for mode in ("default", "reduce-overhead"):
                torch._dynamo.reset()
                with self.subTest(mode, mask=mask is not None), torch.no_grad():
                    want = attend(*three, mask)
                    compiled = torch.compile(attend, fullgraph=True, mode=mode)
                    with vitune.torch.enabled():
                        for _ in range(3):
                            self.assertEqual(compiled(*three, mask).stride(), want.stride())
                        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
                            torch.testing.assert_close(compiled(*three, mask), want, atol=0.03, rtol=0.03)
                    torch.testing.assert_close(compiled(*three, mask), want, atol=0.03, rtol=0.03)

    def test_masks_that_pytorch_refuses_are_refused(self):
        three = fresh(2, 3, 16, 32, device="cuda", dtype=torch.bfloat16)
        for dtype in (torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8):
            mask = torch.ones(16, 16, device="cuda").to(dtype)
            with self.subTest(dtype), torch.no_grad():
                with self.assertRaises(RuntimeError) as theirs:
                    F.scaled_dot_product_attention(*three, mask)
                with self.assertRaises(RuntimeError) as ours, vitune.torch.enabled():
                    F.scaled_dot_product_attention(*three, mask)
                self.assertEqual(str(ours.exception), str(theirs.exception))
                with self.assertRaises(vitune.VituneError):
                    vitune.attention(*three, mask)
                with self.assertRaises(RuntimeError):
                    torch.ops.vitune.attention(*three, mask, False, None, False, True)

    def test_explain_names_the_kernel(self):
        q, k, v = packed(2, 50, 2, 64, device="cuda", dtype=torch.bfloat16)
        selection = vitune.explain(q, k, v)
        self.assertIn(selection.outcome, ("exact", "nearest", "default"))
        self.assertEqual(selection.problem, vitune.problem_text(q, k, v))

    def test_norms_are_pytorchs(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for rows, d in ((6304, 768), (3, 8192), (1000, 197)):
                x, r = (torch.randn(rows, d, device="cuda", dtype=dtype) for _ in range(2))
                w, b = (torch.randn(d, device="cuda", dtype=dtype) for _ in range(2))
                out, total = vitune.layer_norm(x, (d,), w, b, residual=r, return_sum=True)
                self.assertTrue(torch.equal(total, x + r))
                want = torch.nn.functional.layer_norm(x.double() + r.double(), (d,), w.double(), b.double())
                bound = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2**-18}[dtype] * want.abs().max()
                self.assertLessEqual((out.double() - want).abs().max(), bound)
                want = torch.nn.functional.rms_norm(x.double(), (d,), w.double(), 2**-23)
                self.assertLessEqual((vitune.rms_norm(x, (d,), w).double() - want).abs().max(), 2 * bound)

    def test_a_child_process_of_a_fork_is_told(self):
        program = ("import os, sys, torch, vitune; from vitune._ops import attention as attention_ops\n"
                   "library = os.environ.get('VITUNE_TEST_LIBRARY')\n"
                   "library and vitune.use_library(library)\n"
                   "q = torch.randn(1, 1, 8, 16, device='cuda').half(); vitune.attention(q, q, q)\n"
                   "pid = os.fork()\n"
                   "if pid == 0:\n    os._exit(len(attention_ops.contexts()))\n"
                   "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n")
        subprocess.run([sys.executable, "-c", program], check=True,
                       env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, timeout=300)


@needs_library
@needs_torch
@needs_gpu
@unittest.skipIf(timm is None, "timm is not installed")
class TimmGpuTest(unittest.TestCase):
    def test_models_are_served_whole_and_as_close_to_fp32_as_torch_is(self):
        timm.layers.set_fused_attn(True, experimental=True)  # Swin asks for both
        for name in MODELS:
            with self.subTest(name), torch.no_grad():
                torch.manual_seed(3)
                model = timm.create_model(name, pretrained=False).eval().cuda()
                for parameter in model.parameters():
                    if not parameter.any():
                        parameter.normal_(std=0.02)
                images = torch.randn(2, *model.default_cfg["input_size"], device="cuda")
                exact = model(images)
                half = copy.deepcopy(model).bfloat16()
                torchs = half(images.bfloat16()).float()
                vitune.torch.reset_stats()
                with vitune.torch.enabled():
                    ours = half(images.bfloat16()).float()
                stats = vitune.torch.stats()
                self.assertGreater(stats.served, 0)
                self.assertEqual(stats.fallbacks, 0, stats)
                self.assertLessEqual((ours - exact).abs().max(), 2 * (torchs - exact).abs().max())

    def test_compiled_models_replace_attention_in_every_mode(self):
        with vitune.Context(0) as context:  # of a GPU without shipped winners no call is replaced
            problem = vitune.Problem("attention bf16 b=32 h=12 n=197 d=64 layout=packed")
            shipped = context.query(problem).outcome == "exact"
        for name, mode in (("vit_base_patch16_224", None), ("vit_base_patch16_224", "reduce-overhead"),
                           ("swin_tiny_patch4_window7_224", "reduce-overhead")):
            with self.subTest(name, mode=mode), torch.inference_mode():
                torch._dynamo.reset()
                model = timm.create_model(name, pretrained=False).eval().cuda()
                images = torch.randn(32, 3, 224, 224, device="cuda")
                exact = model(images)
                half = model.bfloat16()
                torchs = half(images.bfloat16()).float()
                compiled = vitune.compile(half, mode=mode, fullgraph=True)
                for _ in range(4):  # with CUDA graphs: warm-up, capture, replays
                    ours = compiled(images.bfloat16()).float()
                self.assertLessEqual((ours - exact).abs().max(), 2 * (torchs - exact).abs().max())
                # In windows of the image where that is tuned, else by itself.
                attention = [call for call in vitune.report(compiled).calls
                             if call.operator == "attention" or (call.operator == "window_attention" and call.replaced)]
                self.assertEqual(len(attention), 12)
                for call in attention:  # the shipped winners have the ViT's very problem
                    untuned = "never tuned" in call.reason and not (shipped and name.startswith("vit"))
                    self.assertTrue(untuned or call.times is not None, call)
                    self.assertEqual(call.replaced, not untuned and not call.times.lost, call)


@needs_library
@needs_torch
@needs_gpu
class FlashGpuTest(unittest.TestCase):
    @unittest.skipUnless(torch is not None and hasattr(torch.nn.attention, "restore_flash_attention_impl"), "no registry")
    def test_pytorchs_choice_of_flash_is_served_forward_and_its_own_backward(self):
        from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl
        q, k, v = (x.detach().requires_grad_() for x in packed(2, 197, 12, 64, device="cuda", dtype=torch.bfloat16))
        wide = torch.randn(2, 2, 33, 160, device="cuda", dtype=torch.bfloat16)

        def step():
            out = F.scaled_dot_product_attention(q, k, v)
            return out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            wanted, wanted_wide = step(), F.scaled_dot_product_attention(wide, wide, wide)
            activate_flash_attention_impl("VITUNE")
            self.addCleanup(restore_flash_attention_impl, False)
            vitune.torch.reset_stats()
            got, got_wide = step(), F.scaled_dot_product_attention(wide, wide, wide)
        self.assertEqual((vitune.torch.stats().served, vitune.torch.stats().fallbacks), (1, 1))
        self.assertTrue(torch.equal(got_wide, wanted_wide))
        for ours, theirs in zip(got, wanted):
            torch.testing.assert_close(ours, theirs, atol=0.05, rtol=0.05)
