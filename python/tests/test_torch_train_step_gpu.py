# python/tests/test_torch_train_step_gpu.py -- vitune.train_step() on a GPU: replays beside the eager loop, to the bit, and no wait on the host.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import copy
import functools
import itertools
import os
import random
import unittest

import vitune

from .support import needs_library, needs_torch, torch
from .test_torch_gpu import needs_gpu

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .train_step_cases import RATE, WARM, cosine, loss_of, plain_step, rate_as_tensor, same

try:
    import timm
except ImportError:
    timm = None

DEVICE = "cuda"
adamw = functools.partial(torch.optim.AdamW, lr=RATE, fused=True, capturable=True)
OPTIMIZERS = {
    "AdamW, fused": adamw,
    "SGD, fused": functools.partial(torch.optim.SGD, lr=RATE, momentum=0.9, nesterov=True, fused=True),
    **{each.__name__: functools.partial(each, lr=RATE, capturable=True)
       for each in (torch.optim.AdamW, torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax, torch.optim.ASGD,
                    torch.optim.Adadelta, torch.optim.RMSprop)},
}


def network(dropout=0.2):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.GELU(), nn.Dropout(dropout), nn.Linear(128, 16)).to(DEVICE)


def batches(count, size=32, device=None):
    chance = torch.Generator().manual_seed(5)
    return [(torch.randn(size, 64, generator=chance).to(device or DEVICE), torch.randint(0, 16, (size,), generator=chance).to(device or DEVICE))
            for _ in range(count)]


class Pair:
    """A model that vitune trains, and the same one with an eager loop beside it."""

    def __init__(self, make=adamw, build=network, loss=loss_of, clip=None, scaled=False, **options):
        self.mine, self.theirs = build(), build()
        self.optimizer, self.beside = make(self.mine.parameters()), make(self.theirs.parameters())
        self.scaler, self.other = (torch.amp.GradScaler(DEVICE, init_scale=2.0**10, growth_interval=4) if scaled else None for _ in range(2))
        self.step = vitune.train_step(self.mine, loss, self.optimizer, scaler=self.scaler, clip=clip, compile=False, **options)
        self.plain = functools.partial(plain_step, self.theirs, self.beside, clip=clip, scaler=self.other, rate=rate_as_tensor, loss=loss)

    def expect_alike(self, test, given, accumulate=1):
        given = iter(given)
        for place in itertools.count():
            micro = list(itertools.islice(given, accumulate))
            if not micro:
                break
            torch.manual_seed(100 + place)
            found = [self.step(*batch) for batch in micro]
            torch.manual_seed(100 + place)
            test.assertEqual([value.item() for value in found], self.plain(micro), place)
        test.assertTrue(same(self.mine, self.theirs))

    def graphs(self):
        return sum(shape.captured for shape in self.step.report().shapes)


@needs_library
@needs_torch
@needs_gpu
class TrainStepGpuTest(unittest.TestCase):
    def test_replays_are_to_the_bit_the_eager_loop_with_each_optimizer(self):
        for name, make in OPTIMIZERS.items():
            for clip, accumulate in ((None, 1), (0.5, 1), (0.5, 3)):
                with self.subTest(name, clip=clip, accumulate=accumulate):
                    pair = Pair(make, clip=clip, accumulate=accumulate)
                    pair.expect_alike(self, batches(12 * accumulate), accumulate)
                    self.assertEqual(pair.graphs(), min(accumulate, 2))

    def test_rates_that_a_scheduler_sets_reach_the_graph(self):
        pair = Pair()
        schedules = cosine(pair.optimizer), cosine(pair.beside)
        for batch in batches(WARM + 8):
            pair.expect_alike(self, [batch])
            for each in schedules:
                each.step()
        self.assertIsInstance(pair.optimizer.param_groups[0]["lr"], float)
        self.assertEqual(pair.graphs(), 1)

    def test_dropout_draws_anew_in_each_replay_and_as_the_seed_says(self):
        pair = Pair()
        pair.optimizer.param_groups[0]["lr"] = 0.0
        batch, found = batches(1)[0], []
        for _ in range(WARM + 8):
            torch.manual_seed(7) if len(found) in (WARM + 1, WARM + 4) else None
            found.append(pair.step(*batch).item())
        self.assertEqual(found[WARM + 1 : WARM + 4], found[WARM + 4 : WARM + 7])
        self.assertEqual(len(set(found)), len(found) - 3)

    def test_a_replay_waits_for_nothing_on_the_host(self):
        pair = Pair(clip=0.5, scaled=True)
        on_device, on_host = batches(WARM + 1)[-1], batches(WARM + 1, device="cpu")[-1]
        pinned = [tensor.pin_memory() for tensor in on_host]
        for _ in range(WARM + 1):
            pair.step(*on_device)
        torch.cuda.set_sync_debug_mode("error")
        try:
            for place, batch in enumerate((on_device, on_host, pinned, on_device)):
                pair.optimizer.param_groups[0]["lr"] = RATE / (1 + place)
                pair.step(*batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_batches_of_the_host_may_be_written_when_the_call_returns(self):
        pair = Pair()
        for mine, theirs in zip(batches(WARM + 6, device="cpu"), batches(WARM + 6)):
            torch.manual_seed(3)
            found = pair.step(*mine)
            mine[0].fill_(float("nan"))
            torch.manual_seed(3)
            self.assertEqual(found.item(), pair.plain([theirs])[0])

    def test_a_loader_with_a_thread_that_pins_does_not_break_a_capture(self):
        pair = Pair()
        data = torch.utils.data.TensorDataset(*(torch.cat(each) for each in zip(*batches(16, device="cpu"))))
        for batch in torch.utils.data.DataLoader(data, 32, pin_memory=True, num_workers=1):
            self.assertTrue(pair.step(*batch).isfinite())
        self.assertEqual(pair.graphs(), 1)

    def test_a_scaler_skips_steps_of_infinite_gradients(self):
        for clip, accumulate in ((None, 1), (0.5, 2)):
            with self.subTest(clip=clip, accumulate=accumulate):
                # After an infinite batch a BatchNorm would keep an infinite mean.
                pair = Pair(build=lambda: nn.Sequential(network()[0], network()[4]), clip=clip, scaled=True, accumulate=accumulate)
                for place in range(WARM + 10):
                    micro = batches(accumulate)
                    if place % 4 == 3:
                        micro[-1][0].fill_(float("inf"))
                    found = [pair.step(*batch) for batch in micro]
                    self.assertEqual(str([value.item() for value in found]), str(pair.plain(micro)))
                    self.assertEqual(pair.scaler.get_scale(), pair.other.get_scale())
                    self.assertTrue(same(pair.mine, pair.theirs))
                self.assertEqual(pair.graphs(), min(accumulate, 2))

    def test_a_run_goes_on_from_what_was_saved(self):
        pair = Pair()
        pair.expect_alike(self, batches(WARM + 4))
        saved = copy.deepcopy((pair.mine.state_dict(), pair.optimizer.state_dict()))
        pair.expect_alike(self, batches(3))
        for model, optimizer in ((pair.mine, pair.optimizer), (pair.theirs, pair.beside)):
            model.load_state_dict(copy.deepcopy(saved[0])), optimizer.load_state_dict(copy.deepcopy(saved[1]))
        pair.expect_alike(self, batches(WARM + 4))
        self.assertEqual(pair.step.report().changes, ("the optimizer's state was replaced",))

    def test_averages_and_evaluation_see_each_step(self):
        pair = Pair()
        make = functools.partial(torch.optim.swa_utils.AveragedModel, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        mine, theirs = make(pair.mine), make(pair.theirs)
        for batch in batches(WARM + 5):
            pair.expect_alike(self, [batch])
            mine.update_parameters(pair.mine), theirs.update_parameters(pair.theirs)
            with torch.no_grad():
                self.assertTrue(torch.equal(pair.mine.eval()(batch[0]), pair.theirs.eval()(batch[0])))
            pair.mine.train(), pair.theirs.train()
        self.assertTrue(same(mine, theirs))

    def test_a_last_smaller_batch_gets_a_graph_of_its_own(self):
        pair = Pair()
        for _ in range(WARM + 3):
            pair.expect_alike(self, [*batches(2), *batches(1, size=20)])
        self.assertEqual(pair.graphs(), 2)

    def test_parameters_with_other_memory_are_captured_anew(self):
        pair = Pair()
        pair.expect_alike(self, batches(WARM + 2))
        for model in (pair.mine, pair.theirs):
            model[4].weight.data = 0.5 * model[4].weight.data
        pair.expect_alike(self, batches(WARM + 3))
        self.assertEqual(pair.step.report().changes, ("parameters or buffers have other memory, or lie in it differently",))

    def test_a_model_with_graphs_of_its_own_beside_it_leaves_a_step_right(self):
        """torch.compile's reduce-overhead gives back the workspaces of cuBLAS that the step's graph writes to."""
        pair, other = Pair(), torch.compile(network(), mode="reduce-overhead")
        given = batches(WARM + 3)
        pair.expect_alike(self, given)
        with torch.no_grad():
            for inputs, _ in given:
                other(inputs)
        torch.cuda.empty_cache()
        pair.expect_alike(self, given)
        change, = pair.step.report().changes
        self.assertIn("cuBLAS", change)

    def test_two_models_train_in_turn(self):
        one, two = Pair(), Pair(make=OPTIMIZERS["SGD, fused"])
        for batch in batches(WARM + 6):
            one.expect_alike(self, [batch])
            two.expect_alike(self, [batch])

    def test_steps_may_be_taken_on_a_stream_of_ones_own(self):
        pair, stream = Pair(), torch.cuda.Stream()
        given = batches(WARM + 4)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            pair.expect_alike(self, given)
        torch.cuda.current_stream().wait_stream(stream)

    def test_what_a_graph_cannot_hold_is_refused_and_plain_steps_go_on(self):
        def asks(model, inputs, labels):
            value = loss_of(model, inputs, labels)
            return value * 2 if value.item() > 1e9 else value

        def draws(model, inputs, labels):
            return loss_of(model, inputs + random.random(), labels)

        for loss, words in ((asks, "captur"), (draws, "random numbers are drawn on the host")):
            with self.subTest(words):
                model = network()
                step = vitune.train_step(model, loss, adamw(model.parameters()), compile=False)
                for batch in batches(WARM):
                    step(*batch)
                with self.assertRaisesRegex(vitune.Unsupported, f"(?s)cannot be one CUDA graph.*{words}.*capture=False"):
                    step(*batches(1)[0])
                torch.manual_seed(1)
                plain = vitune.train_step(model, loss, adamw(model.parameters()), compile=False, capture=False)
                self.assertNotEqual(plain(*batches(1)[0]).item(), plain(*batches(1)[0]).item())
                Pair().expect_alike(self, batches(WARM + 2))  # the next capture is whole, and so is its chance

    def test_the_report_has_the_graphs_memory(self):
        pair = Pair()
        pair.expect_alike(self, batches(WARM + 2))
        self.assertGreater(pair.step.report().bytes, 0)
        pair.step.reset()
        self.assertEqual(pair.step.report().bytes, 0)


@contextlib.contextmanager
def reproducible():
    """Kernels of one order of sums."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.cudnn.deterministic = before


@needs_library
@needs_torch
@needs_gpu
@unittest.skipIf(timm is None, "timm is not installed")
class ModelStepGpuTest(unittest.TestCase):
    def build(self, name="vit_tiny_patch16_224"):
        torch.manual_seed(8)
        return timm.create_model(name, depth=2, num_classes=100, drop_path_rate=0.2).train().to(DEVICE)

    def batch(self, count=8):
        chance = torch.Generator().manual_seed(count)
        return torch.randn(count, 3, 224, 224, generator=chance).to(DEVICE), torch.arange(count).to(DEVICE)

    @staticmethod
    def loss(model, images, labels):
        with torch.autocast(DEVICE, torch.bfloat16):
            return F.cross_entropy(model(images).float(), labels)

    def test_a_vit_under_autocast_with_drop_path_is_to_the_bit_the_eager_loop(self):
        with reproducible():
            pair = Pair(functools.partial(adamw, lr=1e-3), self.build, self.loss, clip=1.0)
            pair.expect_alike(self, [self.batch()] * (WARM + 4))
            self.assertEqual(pair.graphs(), 1)

    def test_deterministic_algorithms_are_captured(self):
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            with reproducible():
                Pair(functools.partial(adamw, lr=1e-3), self.build, self.loss).expect_alike(self, [self.batch()] * (WARM + 2))
        finally:
            torch.use_deterministic_algorithms(False)

    def test_a_model_that_vitune_compiles_trains_and_serves_its_newest_weights(self):
        torch._dynamo.reset()
        model, other = self.build(), self.build()
        for each in (model, other):
            for block in each.blocks:
                block.drop_path1 = block.drop_path2 = nn.Identity()
        served = vitune.compile(model)
        step = vitune.train_step(model, self.loss, adamw(model.parameters(), lr=1e-3))
        beside, images = adamw(other.parameters(), lr=1e-3), self.batch()[0]
        found, wanted = [], []
        for place in range(WARM + 6):
            found.append(step(*self.batch()).item())
            wanted += plain_step(other, beside, [self.batch()], rate=rate_as_tensor, loss=self.loss)
            if place in (WARM, WARM + 5):
                with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
                    mine, eager = served.eval()(images).float(), model(images).float()
                self.assertLess((mine - eager).norm().item(), 0.05 * eager.norm().item())
                served.train()
        self.assertLess(found[-1], found[0])
        for mine, theirs in zip(found, wanted):
            self.assertAlmostEqual(mine, theirs, delta=0.1 * max(1.0, abs(theirs)))
        self.assertTrue(step.report().captured)
        self.assertIn("the model: graph of [8, 3, 224, 224]", str(step.report()))

    def test_whole_steps_by_vitunes_kernels_repeat_to_the_bit(self):
        """Drop path is drawn anew in each, from the same seed. Runs strictly where cuBLAS is told how (CUBLAS_WORKSPACE_CONFIG)."""
        strict = os.environ.get("CUBLAS_WORKSPACE_CONFIG") in (":4096:8", ":16:8")
        for name, more in (("vit_small_patch16_224", {"depth": 3}), ("swin_tiny_patch4_window7_224", {"depths": (2, 2, 1, 1)}),
                           ("beit_base_patch16_224", {"depth": 2})):  # fmt: skip
            with self.subTest(name):
                torch.use_deterministic_algorithms(True, warn_only=not strict)
                try:
                    runs = [self.whole_steps(name, more, 32) for _ in range(2)]
                finally:
                    torch.use_deterministic_algorithms(False)
                (losses, weights, served), (again, others, _) = runs
                self.assertEqual(losses, again)
                for each, other in zip(weights, others, strict=True):
                    self.assertTrue(torch.equal(each, other))
                self.assertLess(losses[-1], losses[0])
                self.assertGreater(served, 10)

    def whole_steps(self, name, more, count):
        """(losses, weights after them, how many calls vitune serves) of a model from the same weights each time."""
        torch._dynamo.reset()
        torch.manual_seed(8)
        model = timm.create_model(name, num_classes=100, drop_path_rate=0.2, **more).train().to(DEVICE)
        compiled = vitune.compile(model, dynamic=False)
        step = vitune.train_step(compiled, self.loss, adamw(model.parameters(), lr=1e-3))
        torch.manual_seed(9)
        losses = [step(*self.batch(count)).item() for _ in range(WARM + 6)]
        self.assertTrue(step.report().captured)
        served = sum(call.replaced for call in vitune.report(compiled).calls)
        return losses, [each.detach().clone() for each in model.parameters()], served

    def test_a_model_with_graphs_of_its_own_is_refused_by_name(self):
        model = self.build()
        with self.assertRaisesRegex(vitune.Unsupported, "CUDA graphs of its own"):
            vitune.train_step(vitune.compile(model, mode="reduce-overhead"), self.loss, adamw(model.parameters()))
