# python/tests/test_torch_remembered.py -- Calls that the operators' library launches without Python: the same answers, of their own kind alone.
# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import vitune

from .support import OPERATORS, ROOT, needs_device, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")
if not OPERATORS:
    raise unittest.SkipTest("no operators' library was named")

from torch._inductor.utils import run_and_get_code
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.flop_counter import FlopCounterMode

from vitune._compile.backend import WinnersInCacheKey
from vitune._compile.patterns import every  # noqa: F401: operators are there
from vitune._ops import attention as attention_ops, attention_training, linear as linear_ops, norm as norm_ops, norm_training, remembered, training
from vitune._ops.order import CONTIGUOUS
from vitune._runtime import native

from .training_staged import launch_with_scratch

BF16 = torch.bfloat16
NATIVE, PYTHON = torch.ops.vitune_native, torch.ops.vitune


def launch_apart(problem, tensors):
    """What norm_ops.launch() does, with tensors of the CPU."""
    with _disable_current_modes():  # its copies are no part of what the operator computes
        launch_with_scratch(problem, tensors)


def launch(problem, tensors):
    """What scratch.launch() does."""
    launch_apart(problem, tensors)
    remembered.note(problem.text, tensors, attention_ops.context_of(0).workspace_bytes(problem))


def leaf(*shape, dtype=BF16):
    return torch.randn(*shape).to(dtype)


def attention(heads=2, rows=9, d=16, batch=2):
    q, k, v, dout = (leaf(batch, rows, heads, d).transpose(1, 2) for _ in range(4))
    out, lse = attention_training.attention_by_torch(q.double(), k.double(), v.double(), None, False, None, 0)
    return dout, q, k, v, None, out.to(BF16), lse.float(), False, None, False


#: name -> arguments, drawn anew at each call.
CALLS = {
    "linear_train": lambda: (leaf(2, 5, 16), leaf(24, 16, dtype=torch.float32), leaf(24, 16), leaf(24), None),
    "linear_act_train": lambda: (leaf(10, 16), leaf(24, 16, dtype=torch.float32), leaf(24, 16), None, "gelu"),
    "act_linear_train": lambda: (leaf(10, 16), leaf(10, 16), leaf(24, 16, dtype=torch.float32), leaf(24, 16), leaf(24), "silu", leaf(24)),
    "linear_input_grad": lambda: (leaf(2, 5, 24), leaf(24, 16)),
    "linear_act_input_grad": lambda: (leaf(2, 5, 24), leaf(24, 16), leaf(2, 5, 16), "gelu_tanh"),
    "linear_weight_grad": lambda: (leaf(2, 5, 24), leaf(2, 5, 16), torch.float32, True),
    "linear_scale_weight_grad": lambda: (leaf(10, 24), leaf(10, 16), leaf(24, 16), leaf(24), leaf(24)),
    "norm_train": lambda: (leaf(6, 32), leaf(32, dtype=torch.float32), leaf(32, dtype=torch.float32), 1e-6, False, torch.float32),
    "norm_backward": lambda: (leaf(6, 32), leaf(6, 32, dtype=torch.float32), leaf(6, dtype=torch.float32), leaf(6, dtype=torch.float32).abs(),
                              leaf(32, dtype=torch.float32), leaf(6, 32, dtype=torch.float32), None, BF16, torch.float32, True, True),
    "attention_backward": attention,
    "attention_qkv_backward": lambda: (lambda dout, q, k, v, mask, out, lse, *words: (
        dout, torch.stack([t.transpose(1, 2) for t in (q, k, v)], 2).contiguous(), mask, out, lse, *words))(*attention()),
}


@needs_device
@needs_torch
class RememberedTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        context_of = attention_ops.context_of
        for owner, name, value in ((attention_ops, "is_on_gpu", lambda tensor: True), (attention_ops, "context_of", lambda device: context_of(0)),
                                   *((module, "launch", launch) for module in (training, norm_training, attention_training, linear_ops)),
                                   (norm_ops, "launch", launch_apart)):
            patch = mock.patch.object(owner, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def call(self, name, given):
        """The native operator's answer, and how many calls were launched without Python."""
        before = native.loaded.remembered()
        found = getattr(NATIVE, name).default(*remembered._encoded(given))
        return found if isinstance(found, (tuple, list)) else (found,), native.loaded.remembered() - before

    def expect(self, name, given, without_python):
        wanted = getattr(PYTHON, name).default(*given)
        found, count = self.call(name, given)
        self.assertEqual(count, without_python)
        for mine, theirs in zip(found, wanted if isinstance(wanted, (tuple, list)) else (wanted,), strict=True):
            self.assertEqual((mine.shape, mine.stride(), mine.dtype), (theirs.shape, theirs.stride(), theirs.dtype))
            self.assertTrue(torch.equal(mine, theirs))
        return found

    def test_each_operator_is_launched_without_python_from_its_third_call_on(self):
        self.assertEqual({*CALLS}, {*remembered._bodies})
        for name, draw in CALLS.items():
            with self.subTest(name):
                calls = [draw() for _ in range(5)]  # all alive: each has memory of its own
                for given, count in zip(calls, (0, 0, 1, 1, 1)):
                    self.expect(name, given, count)

    def test_a_call_of_another_kind_is_learnt_by_itself(self):
        weights = leaf(24, 16)
        whole, rows = leaf(21, 24), leaf(16, 32)
        shifted = leaf(10 * 24 + 1)[1:].view(10, 24)  # two bytes behind a multiple of 16
        kinds = [(leaf(10, 24), weights), (whole[::2][:10], weights), (shifted, weights), (leaf(11, 24), weights), (leaf(10, 24), rows.t()[:24]),
                 (leaf(10, 24).half(), weights.half())]
        for given in kinds:
            for count in (0, 0, 1, 1):
                self.expect("linear_input_grad", given, count)
        for count in (0, 0, 1):  # a result of another type, without the sums of rows
            self.expect("linear_weight_grad", (leaf(7, 24), leaf(7, 16), BF16, False), count)
        for count in (0, 0, 1):
            self.expect("linear_weight_grad", (leaf(7, 24), leaf(7, 16), torch.float32, False), count)

    def test_one_tensor_given_twice_is_another_kind_than_two(self):
        for count in (0, 0, 1):
            both = leaf(7, 24)
            self.expect("linear_weight_grad", (both, both, torch.float32, True), count)
        for count in (0, 0, 1):
            self.expect("linear_weight_grad", (leaf(7, 24), leaf(7, 24), torch.float32, True), count)
        both = leaf(7, 24)
        self.expect("linear_weight_grad", (both, both, torch.float32, True), 1)

    def test_a_tensor_inside_of_another_is_another_kind_than_one_beside_it(self):
        whole = lambda: leaf(7, 48)  # noqa: E731
        for count in (0, 0, 1, 1):
            both = whole()
            self.expect("linear_weight_grad", (both[:, :24], both[:, 24:], torch.float32, True), count)
        for count in (0, 0, 1, 1):
            self.expect("linear_weight_grad", (whole()[:, :24], whole()[:, 24:], torch.float32, True), count)

    def test_what_pytorch_computes_beside_a_launch_stays_pythons(self):
        for _ in range(9):
            dout, *rest = attention(rows=7)
            narrow = torch.zeros(*dout.shape[:3], 20, dtype=BF16)[..., 1:17].copy_(dout)  # is copied before the launch
            self.expect("attention_backward", (narrow, *rest), 0)

    def test_what_libvitune_refuses_is_pytorchs_answer(self):
        for _ in range(9):
            self.expect("linear_input_grad", (leaf(10, 24, dtype=torch.float32), leaf(24, 16, dtype=torch.float32)), 0)

    def test_a_launch_that_is_refused_is_pythons_and_learnt_anew(self):
        draw = lambda: (leaf(9, 24), leaf(24, 16))  # noqa: E731
        for count in (0, 0, 1):
            self.expect("linear_input_grad", draw(), count)
        native.loaded._library.vitune_torch_staged_refuse(1)
        for count in (0, 0, 0, 1):
            self.expect("linear_input_grad", draw(), count)

    def test_threads_learn_and_launch_at_once(self):
        wrong = []

        def work():
            for _ in range(12):
                given = leaf(13, 24), leaf(24, 16)
                found, _ = self.call("linear_input_grad", given)
                # Kernels of other threads have the device in turns: the answer of one's own is what counts.
                wanted = given[0].float() @ given[1].float()
                wrong.append((found[0].float() - wanted).abs().max().item() > 0.1)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [False] * 36)

    def test_an_error_of_pythons_is_an_error_and_the_next_call_is_right(self):
        with mock.patch.object(linear_ops, "launch", side_effect=ValueError("CUDA out of memory. Tried")), \
                self.assertRaisesRegex(RuntimeError, "^CUDA out of memory. Tried$"):
            self.call("linear_input_grad", (leaf(3, 24), leaf(24, 16)))
        self.expect("linear_input_grad", (leaf(3, 24), leaf(24, 16)), 0)

    def test_ctrl_c_stays_ctrl_c(self):
        with self.assertRaises(KeyboardInterrupt), mock.patch.object(linear_ops, "launch", side_effect=KeyboardInterrupt):
            try:
                self.call("linear_input_grad", (leaf(3, 24), leaf(24, 16)))
            except RuntimeError:  # as programs do that leave out a batch
                time.sleep(5)

    def test_launches_that_are_refused_again_and_again_are_learnt_again_and_again(self):
        draw = lambda: (leaf(8, 24), leaf(24, 16))  # noqa: E731
        for _ in range(9):
            for count in (0, 0, 1):
                self.expect("linear_input_grad", draw(), count)
            native.loaded._library.vitune_torch_staged_refuse(1)
            self.expect("linear_input_grad", draw(), 0)

    def test_what_is_computed_below_autograd_is_seen_too(self):
        for modes in (torch.inference_mode, torch._C._AutoDispatchBelowAutograd):
            with modes(), remembered._Others() as others:
                leaf_ = torch.empty(4, 6).view(6, 4).t()
                self.assertFalse(others.seen)
                leaf_.contiguous()
            self.assertTrue(others.seen)

    def test_a_program_without_compilers_of_vitunes_finds_what_a_cache_names(self):
        program = "import vitune.torch, torch\nfrom vitune._ops import training\nprint(torch.ops.vitune_native.linear_train.default._schema)"
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "python", capture_output=True, text=True, timeout=120)
        self.assertIn("vitune_native::linear_train(Tensor x, ", done.stdout, done.stderr)

    def test_the_key_of_a_cache_says_who_is_called(self):
        keys = {WinnersInCacheKey([], None).uuid()}
        with mock.patch.object(native, "loaded", None):
            keys.add(WinnersInCacheKey([], None).uuid())
        self.assertEqual(len(keys), 2)

    def test_operations_are_counted_once(self):
        for name, draw in CALLS.items():
            given = draw()
            counts = []
            for operators, arguments in ((NATIVE, remembered._encoded(given)), (PYTHON, given)):
                with FlopCounterMode(display=False) as counter:
                    getattr(operators, name).default(*arguments)
                counts.append(counter.get_total_flops())
            self.assertEqual(*counts, name)

    def block(self, x, weights):
        """One of a transformer, of the operators that compilers are given."""
        half = [weight.detach().to(BF16) for weight in weights]
        y, _, _ = norm_training.norm_train(x, None, None, 1e-5, False, BF16)
        qkv = training.linear_train(y, weights[0], half[0], None)
        out, _ = attention_training.attention_qkv_train(qkv.unflatten(-1, (3, 2, 16)), None, False, None, CONTIGUOUS)
        y = training.linear_train(out.transpose(1, 2).flatten(2), weights[1], half[1], None)
        total, y, _, _ = norm_training.sum_norm_train(y, x, None, None, None, 1e-5, False, BF16)
        pre, y = training.linear_act_train(y, weights[2], half[2], None, "gelu")
        return total + training.act_linear_train(pre, y, weights[3], half[3], None, "gelu")

    def test_a_compiled_step_calls_them_and_has_the_gradients_of_one_that_is_not(self):
        shapes = ((96, 32), (32, 32), (64, 32), (32, 64))
        weights = [torch.randn(*shape).div(6).requires_grad_() for shape in shapes]
        compiled = torch.compile(self.block, fullgraph=True)

        def gradients(step, x):
            return torch.autograd.grad(step(x, weights).square().mean(), (x, *weights))
        alive, before = [], native.loaded.remembered()
        for number in range(5):
            x = torch.randn(2, 11, 32).requires_grad_()
            found, sources = run_and_get_code(lambda: gradients(compiled, x))
            alive.append((x, found))  # what is allocated next lies elsewhere
            if number == 0:
                written = "".join(sources)
                for name in ("linear_train", "linear_act_train", "act_linear_train", "norm_backward", "attention_qkv_backward", "linear_weight_grad",
                             "linear_act_input_grad", "linear_input_grad"):
                    self.assertIn(f"vitune_native.{name}.default(", written)
        self.assertGreaterEqual(native.loaded.remembered() - before, 3 * 12)
        for x, found in alive:
            for mine, theirs in zip(found, gradients(self.block, x), strict=True):
                self.assertLess((mine - theirs).norm().item(), 0.02 * theirs.norm().item())

    def test_shapes_that_change_are_kinds_of_their_own(self):
        weight = torch.randn(24, 16).requires_grad_()
        step = lambda x, w: training.linear_train(x, w, w.detach().to(BF16), None)  # noqa: E731
        compiled = torch.compile(step, dynamic=True)
        for rows in (5, 9, 5, 9, 5, 9, 5, 33):
            x = leaf(rows, 16)
            found, wanted = (torch.autograd.grad(each(x, weight).float().sum(), weight)[0] for each in (compiled, step))
            self.assertTrue(torch.equal(found, wanted))


if __name__ == "__main__":
    unittest.main()
