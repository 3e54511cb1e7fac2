# python/tests/training_staged.py -- Training in eager mode on the emulated device, of tensors that PyTorch holds on the CPU.
# SPDX-License-Identifier: Apache-2.0
"""A class of tests that stands on TrainingTest has its norms and attention launched there, and says whether a CUDA graph captures."""
from unittest import mock

import torch
from torch.utils._python_dispatch import _disable_current_modes

import vitune

from .support import DEVICE
from .test_torch_host import TorchTest
from .test_torch_norm import launch_copies, launch_staged as launch_norm

from vitune._dropin import training as training_dropin
from vitune._runtime import native
from vitune._ops import attention as attention_ops, attention_autograd, attention_training, norm as norm_ops, norm_autograd, norm_training, remembered


#: Where the one gradient of a projection is computed: a module and a name in it, to be patched.
QKV_BACKWARD = (attention_training, "qkv_backward") if attention_autograd._qkv_backward is None else (attention_autograd, "_qkv_backward")


def launch_with_scratch(problem, tensors):
    """What scratch.launch() does, with tensors of the CPU."""
    context = attention_ops.context_of(0)
    size = context.workspace_bytes(problem)
    scratch = DEVICE.upload(bytes(max(size, 1)))
    outputs = next(place for place, tensor in enumerate(problem.tensors) if tensor.output)
    launch_copies(tensors, outputs, lambda pointers: context.run(problem, pointers, workspace=scratch if size else 0, workspace_bytes=size))


class TrainingTest(TorchTest):
    """asked: the texts of the problems of gradients, and of norms, that were launched; without Python, their operators."""

    def setUp(self):
        super().setUp()
        self.asked, self.captures, context_of = [], False, attention_ops.context_of

        def noted(launch):
            def run(problem, tensors):
                self.asked.append(problem.text)
                with _disable_current_modes():  # its copies are no part of what the operator computes
                    launch(problem, tensors)
            return run

        def launch(problem, tensors):
            launch_with_scratch(problem, tensors)
            remembered.note(problem.text, tensors, attention_ops.context_of(0).workspace_bytes(problem))
        for module, name, value in ((norm_ops, "launch", noted(launch_norm)), (norm_training, "launch", noted(launch)),
                                    (attention_training, "launch", noted(launch)),
                                    (attention_ops, "context_of", lambda device: context_of(0)),
                                    (training_dropin, "is_capturing", lambda: self.captures)):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        def counted(name, operator):
            def run(*given):
                before = native.loaded.remembered()
                results = operator(*given)
                self.asked += [name] * (native.loaded.remembered() - before)
                return results
            return run
        for module, name, problem in ((norm_autograd, "_train", "norm"), (norm_autograd, "_backward", "norm_backward"),
                                      (attention_autograd, "_backward", "attention_backward"),
                                      (attention_autograd, "_qkv_backward", "attention_backward")):
            if getattr(module, name) is not None:
                patch = mock.patch.object(module, name, counted(problem, getattr(module, name)))
                patch.start()
                self.addCleanup(patch.stop)
        for plans in (norm_ops._plans, norm_training._plans, attention_training._plans, norm_autograd._answers, attention_autograd._answers):
            plans.clear()

    def operators_asked(self):
        """By their names, in order, since the last call."""
        asked = [text.split()[0] for text in self.asked]
        self.asked.clear()
        return asked

    def counts(self):
        """(attention served, left to PyTorch, norms served) since the last call."""
        stats = vitune.torch.stats()
        vitune.torch.reset_stats()
        return stats.served, stats.fallbacks, stats.norms

    def expect_near(self, got, want, bound):
        self.assertEqual(got.shape, want.shape)
        self.assertLessEqual((got.double() - want.double()).norm().item(), bound * want.double().norm().item() + 1e-9)


#: Of what is rounded once, by its type.
BOUND = {torch.bfloat16: 2**-6, torch.float16: 2**-9, torch.float32: 2**-17}


def leaf(*shape, dtype):
    return torch.randn(*shape).to(dtype).requires_grad_()


def in_fp64(tensors):
    """Copies that want the same gradients."""
    return [tensor.detach().double().requires_grad_(tensor.requires_grad) if tensor is not None and tensor.is_floating_point() else tensor
            for tensor in tensors]
