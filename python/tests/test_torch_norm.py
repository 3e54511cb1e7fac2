# python/tests/test_torch_norm.py -- Norms on PyTorch's tensors, on the emulated device: values, strides, compilers, refusals.
# SPDX-License-Identifier: Apache-2.0
"""Tensors stay on the CPU: only the launch is replaced, as in test_torch_host.py."""
import unittest
from unittest import mock

import vitune

from .support import DEVICE, needs_device, needs_library, needs_torch, torch

if torch is not None:
    import torch.nn.functional as F
    from torch._subclasses.fake_tensor import FakeTensorMode

    from vitune._ops import attention as attention_ops, group_norm as group_norm_ops, norm as norm_ops

    from .torch_staged import storage_of


def launch_staged(problem, tensors):
    """What norm_ops.launch() does, with tensors of the CPU."""
    launch_copies(tensors, 4, lambda pointers: norm_ops.launch_pointers(attention_ops.context_of(0), problem, pointers, 0))


def launch_groups_staged(problem, tensors):
    """What scratch.launch() does, with tensors of the CPU."""
    context = attention_ops.context_of(0)
    size = context.workspace_bytes(problem)
    scratch = DEVICE.upload(bytes(max(size, 1)))
    launch_copies(tensors, 3, lambda pointers: context.run(problem, pointers, workspace=scratch if size else 0,
                                                           workspace_bytes=size))


def launch_copies(tensors, outputs, run):
    """Copies the tensors' memory to the device, launches, and copies those from place `outputs` on back."""
    staged = {}
    pointers = []
    for tensor in tensors:
        if tensor is None:
            pointers.append(0)
            continue
        place = tensor.untyped_storage().data_ptr()
        if place not in staged:
            staged[place] = DEVICE.upload(storage_of(tensor).clone().numpy().tobytes())  # numpy() would fix its size
        pointers.append(staged[place] + tensor.data_ptr() - place)
    run(pointers)
    for tensor in tensors[outputs:]:
        if tensor is not None:
            bytes_ = storage_of(tensor)
            data = DEVICE.download(staged[bytes_.data_ptr()], bytes_.numel())
            bytes_.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))


@needs_library
@needs_device
@needs_torch
class NormTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)
        for module, name, value in ((norm_ops, "launch", launch_staged), (group_norm_ops, "launch", launch_groups_staged),
                                    (attention_ops, "is_on_gpu", lambda tensor: True)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        norm_ops._plans.clear()

    def expect_close(self, got, want, dtype, bound=None):
        bound = bound or {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2**-18}[dtype]
        self.assertEqual((got.dtype, tuple(got.shape)), (dtype, tuple(want.shape)))
        self.assertLessEqual((got.double() - want).abs().max().item(), bound * max(1.0, want.abs().max().item()))

    def test_layer_norm_is_pytorchs_in_every_type(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for shape in ((3, 5, 96), (7, 197), (64,)):
                x, w, b = torch.randn(shape, dtype=dtype), torch.randn(shape[-1], dtype=dtype), torch.randn(shape[-1], dtype=dtype)
                want = F.layer_norm(x.double(), shape[-1:], w.double(), b.double())
                self.expect_close(vitune.layer_norm(x, shape[-1:], w, b), want, dtype)
        # Far from 0: a variance by mean squares would have nothing left. The mean itself is known to 2**-15.
        x = torch.randn(4, 96) + 1000
        self.expect_close(vitune.layer_norm(x, (96,)), F.layer_norm(x.double(), (96,)), torch.float32, 2**-13)

    def test_the_sum_with_a_residual_comes_along(self):
        x, r = torch.randn(2, 9, 64, dtype=torch.bfloat16), torch.randn(2, 9, 64, dtype=torch.bfloat16)
        w = torch.randn(64)
        out, total = vitune.layer_norm(x, (64,), w, residual=r, return_sum=True)
        self.assertTrue(torch.equal(total, x + r))
        self.expect_close(out, F.layer_norm(x.double() + r.double(), (64,), w.double()), torch.bfloat16)

    def test_statistics_are_fp32_and_other_types_may_come_out(self):
        x = torch.randn(6, 80, dtype=torch.float16) * 3 + 2
        out, mean, rstd = vitune.layer_norm(x, (80,), return_statistics=True, out_dtype=torch.float32)
        wide = x.double()
        self.expect_close(mean, wide.mean(-1), torch.float32)
        self.expect_close(rstd, (wide.var(-1, unbiased=False) + 1e-5).rsqrt(), torch.float32)
        self.expect_close(out, F.layer_norm(wide, (80,)), torch.float32)
        out, rstd = vitune.rms_norm(x, (80,), return_statistics=True)
        self.expect_close(rstd, (wide.pow(2).mean(-1) + 2**-23).rsqrt(), torch.float32)

    def test_rms_norm_is_pytorchs(self):
        for scale in (1.0, 1e-4):  # eps matters in the second
            x, w = torch.randn(5, 48, dtype=torch.bfloat16) * scale, torch.randn(48, dtype=torch.bfloat16)
            want = F.rms_norm(x.double(), (48,), w.double(), eps=2**-23)
            self.expect_close(vitune.rms_norm(x, (48,), w), want, torch.bfloat16)
            self.expect_close(F.rms_norm(x, (48,), w), want, torch.bfloat16)

    def test_rows_with_gaps_are_read_where_they_lie(self):
        tokens = torch.randn(4, 3, 72, dtype=torch.bfloat16)
        x = tokens[:, 0]  # the class token of each image
        with mock.patch.object(norm_ops, "launch", wraps=launch_staged) as spy:
            self.expect_close(vitune.layer_norm(x, (72,)), F.layer_norm(x.double(), (72,)), torch.bfloat16)
            self.assertEqual(spy.call_args.args[1][0].data_ptr(), tokens.data_ptr())
        odd = torch.randn(4 * 33 + 1, dtype=torch.bfloat16)[1:].view(4, 33)  # an odd address
        self.expect_close(vitune.layer_norm(odd, (33,)), F.layer_norm(odd.double(), (33,)), torch.bfloat16)
        across = torch.randn(24, 5).t()
        self.expect_close(vitune.layer_norm(across, (24,)), F.layer_norm(across.double(), (24,)), torch.float32)

    def test_several_dimensions_are_one(self):
        x, w = torch.randn(3, 4, 24), torch.randn(4, 24)
        out, total = vitune.layer_norm(x, (4, 24), w, residual=x, return_sum=True)
        self.expect_close(out, F.layer_norm(2 * x.double(), (4, 24), w.double()), torch.float32)
        self.assertTrue(torch.equal(total, 2 * x))
        _, mean, _ = vitune.layer_norm(x, (4, 24), return_statistics=True)
        self.assertEqual(tuple(mean.shape), (3,))

    def test_no_row_is_no_launch(self):
        self.assertEqual(tuple(vitune.layer_norm(torch.randn(0, 16), (16,)).shape), (0, 16))

    def test_a_compiled_call_is_the_eager_one(self):
        x, w = torch.randn(4, 96, dtype=torch.bfloat16), torch.randn(96, dtype=torch.bfloat16)
        norm_ops.norm_op.register_kernel("cpu")(norm_ops.norm_op._init_fn)

        def call(x):
            out, total = vitune.layer_norm(x, (96,), w, residual=x, return_sum=True)
            return out * 2, total
        with torch.no_grad():
            want = call(x)
            for dynamic in (False, True):
                torch._dynamo.reset()
                got = torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")(x)
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, want)))

    def test_group_norm_with_its_activation_is_pytorchs(self):
        for dtype in (torch.bfloat16, torch.float32):
            for shape, groups in (((2, 24, 5, 7), 6), ((3, 10, 4), 5), ((2, 16), 4)):
                x, w, b = torch.randn(shape, dtype=dtype), torch.randn(shape[1]), torch.randn(shape[1])
                want = F.group_norm(x.double(), groups, w.double(), b.double())
                self.expect_close(vitune.group_norm(x, groups, w, b), want, dtype, 2**-6 if dtype == torch.bfloat16 else 2**-18)
                for activation, function in (("silu", F.silu), ("mish", F.mish)):
                    got = vitune.group_norm(x, groups, w, b, activation=activation)
                    self.expect_close(got, function(want), dtype, 2**-6 if dtype == torch.bfloat16 else 2**-16)
        x = torch.randn(2, 24, 5, 7).to(memory_format=torch.channels_last)
        got = vitune.group_norm(x, 6)
        self.expect_close(got, F.group_norm(x.double(), 6), torch.float32)
        self.assertTrue(got.is_contiguous(memory_format=torch.channels_last))
        self.assertEqual(tuple(vitune.group_norm(torch.randn(0, 6, 3), 3).shape), (0, 6, 3))

    def test_a_compiled_group_norm_keeps_the_memory_format(self):
        group_norm_ops.group_norm_op.register_kernel("cpu")(group_norm_ops.group_norm_op._init_fn)
        x = torch.randn(2, 8, 3, 3).to(memory_format=torch.channels_last)
        with torch.no_grad():
            torch._dynamo.reset()
            got = torch.compile(lambda x: vitune.group_norm(x, 4, activation="silu"), fullgraph=True, backend="aot_eager")(x)
            self.assertTrue(torch.equal(got, vitune.group_norm(x, 4, activation="silu")))
        self.assertEqual(got.stride(), x.stride())

    def test_wrong_group_norms_say_why(self):
        x = torch.randn(2, 6, 3)
        for arguments, keywords, words in (((x, 4), {}, "must divide"), ((x, 3, torch.randn(5)), {}, "weight of"),
                                           ((x[0, 0], 1), {}, "takes"), ((x, 3), {"activation": "gelu"}, "silu")):
            with self.assertRaisesRegex(vitune.InvalidArgument, words):
                vitune.group_norm(*arguments, **keywords)

    def test_wrong_calls_say_why(self):
        x = torch.randn(4, 16)
        wrong = [((x, (8,)), {}, "not how the shape"), ((x, (16,), torch.randn(8)), {}, "weight of"),
                 ((x, (16,)), {"residual": torch.randn(3, 16)}, "residual of"), ((x, (16,)), {"return_sum": True}, "would be x"),
                 ((x, ()), {}, "not how the shape"), ((x, (16,)), {"eps": 0.0}, "eps")]
        for arguments, keywords, words in wrong:
            with self.assertRaisesRegex(vitune.InvalidArgument, words):
                vitune.layer_norm(*arguments, **keywords)
        with self.assertRaisesRegex(vitune.Unsupported, "float64"):
            vitune.layer_norm(x.double(), (16,))
        with self.assertRaisesRegex(vitune.Unsupported, "derivative"):
            vitune.layer_norm(x.requires_grad_(), (16,))
        with self.assertRaisesRegex(vitune.Unsupported, "8192"):
            vitune.layer_norm(torch.randn(1, 9000), (9000,))
        with mock.patch.object(attention_ops, "is_on_gpu", lambda tensor: False), self.assertRaisesRegex(vitune.Unsupported, "cpu"):
            vitune.layer_norm(torch.randn(4, 16), (16,))


@needs_library
@needs_torch
class FakeNormTest(unittest.TestCase):
    def test_compilers_know_the_results(self):
        with FakeTensorMode(), torch.no_grad():
            x = torch.empty(2, 197, 768, dtype=torch.bfloat16, device="cuda")
            results = vitune.layer_norm(x, (768,), residual=x, return_sum=True, return_statistics=True, out_dtype=torch.float32)
        self.assertEqual([(tuple(t.shape), t.dtype) for t in results],
                         [((2, 197, 768), torch.float32), ((2, 197, 768), torch.bfloat16), ((2, 197), torch.float32),
                          ((2, 197), torch.float32)])


if __name__ == "__main__":
    unittest.main()
