# python/tests/test_train_cct.py -- examples/train_cct: its data sets, its model, and that a resumed training is an unbroken one.
# SPDX-License-Identifier: Apache-2.0
import contextlib
import dataclasses
import importlib
import io
import pathlib
import pickle
import sys
import tempfile
import unittest
from unittest import mock

from .support import ROOT, needs_torch, torch

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

EXAMPLES = str(ROOT / "examples")


def available(name):
    return importlib.util.find_spec(name) is not None


def setUpModule():
    global compare, data, model, recipe, train, training, ways
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    unittest.addModuleCleanup(torch.set_num_threads, threads)
    sys.path.insert(0, EXAMPLES)
    unittest.addModuleCleanup(sys.path.remove, EXAMPLES)
    compare, data, model, recipe, train, training, ways = (
        importlib.import_module(f"train_cct.{name}") for name in ("compare", "data", "model", "recipe", "train", "training", "ways"))


def small(**changes):
    return dataclasses.replace(recipe.RECIPES["digits"], **{"model": "cct_2_3x1", "image": 8, "classes": 4, "epochs": 2, "batch": 8, **changes})


def patterns(count, seed):
    """Images that are told apart by the quarter that is bright."""
    labels = torch.arange(count) % 4
    images = 0.3 * torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    for place, label in enumerate(labels.tolist()):
        images[place, :, 4 * (label // 2):4 * (label // 2) + 4, 4 * (label % 2):4 * (label % 2) + 4] += 1
    return torch.utils.data.TensorDataset(images, labels)


def trained(epochs, way="eager", amp="off", of=None):
    of = of or small()
    torch.manual_seed(3)
    run = training.Training(of, recipe.model_of(of), (patterns(48, 0), patterns(16, 1)), way, amp, seed=3)
    for _ in range(epochs):
        run.run_epoch()
    return run


@needs_torch
class ModelTest(unittest.TestCase):
    def test_the_models_have_the_weights_and_tokens_of_the_paper(self):
        for name, image, classes, weights, tokens in (("cct_14_7x2", 384, 1000, 22.51e6, 576), ("cct_7_3x1", 32, 10, 3.76e6, 256)):
            with torch.device("meta"):
                found = model.CCT(name, image, classes)
            self.assertEqual(found.positions.shape[1], tokens)
            count = sum(weight.numel() for weight in found.parameters())
            self.assertLess(abs(count / weights - 1), 2e-2, (name, count))

    def test_the_mlp_is_added_to_what_the_second_norm_gives(self):
        block = model.Block(model.SIZES["cct_2_3x1"], 0.1, 0.1, "none").eval()
        torch.nn.init.zeros_(block.mlp[2].weight)
        torch.nn.init.zeros_(block.mlp[2].bias)
        x = torch.randn(2, 5, 128)
        self.assertLess(block(x).mean(-1).abs().max(), 1e-5)
        self.assertLess((block(x).var(-1, unbiased=False) - 1).abs().max(), 1e-3)

    def test_drop_path_drops_whole_images_and_keeps_the_mean(self):
        torch.manual_seed(0)
        drops = model.DropPath(0.25)
        found = drops(torch.ones(4000, 3, 2))
        self.assertEqual(sorted(found.unique().tolist()), [0, torch.tensor(1 / 0.75).item()])
        self.assertTrue((found == found[:, :1, :1]).all())
        self.assertLess(abs(found.mean() - 1), 0.03)
        self.assertTrue((drops.eval()(torch.ones(9, 1, 1)) == 1).all())


@needs_torch
class DataTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def expect_images(self, found, count, image, classes):
        self.assertEqual(len(found), count)
        images, labels = next(iter(data.batches(found, 4, None)))
        self.assertEqual((images.dtype, list(images.shape[1:])), (torch.float32, [3, image, image]))
        self.assertTrue(((labels >= 0) & (labels < classes)).all())
        self.assertLess(images.abs().max(), 10)

    @unittest.skipUnless(available("sklearn"), "scikit-learn is not installed")
    def test_digits_come_with_scikit_learn(self):
        train_set, test_set = data.load("digits", None, 8)
        self.expect_images(train_set, 1437, 8, 10)
        self.expect_images(test_set, 360, 8, 10)

    def test_textures_are_the_same_at_each_call_and_differ_by_seed(self):
        mine, other = data.Textures(20, 16, 0), data.Textures(20, 16, 1)
        self.assertTrue(torch.equal(mine[3][0], mine[3][0]))
        self.assertFalse(torch.equal(mine[3][0], other[3][0]))
        self.assertEqual([mine[place][1] for place in range(12)], [*range(10), 0, 1])
        self.expect_images(mine, 20, 16, 10)

    @unittest.skipUnless(available("torchvision"), "torchvision is not installed")
    def test_cifar10_is_read_from_files_of_its_format(self):
        from torchvision.datasets import CIFAR10

        place = self.folder / CIFAR10.base_folder
        place.mkdir()
        for name in ("data_batch_1", "test_batch"):
            with open(place / name, "wb") as file:
                pickle.dump({"data": torch.randint(0, 256, (6, 3072), dtype=torch.uint8).numpy(), "labels": [0, 9, 4, 2, 1, 7]}, file)
        (place / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(each) for each in range(10)]}))
        # For the real files the loader checks the digests that it knows; for these it knows none.
        with mock.patch.multiple(CIFAR10, train_list=[["data_batch_1", None]], test_list=[["test_batch", None]],
                                 meta={"filename": "batches.meta", "key": "label_names", "md5": None}):
            for found in data.load("cifar10", self.folder, 32):
                self.expect_images(found, 6, 32, 10)

    @unittest.skipUnless(available("torchvision") and available("scipy"), "torchvision or scipy is not installed")
    def test_flowers_are_read_from_files_of_their_format(self):
        from PIL import Image
        from scipy.io import savemat

        place = self.folder / "flowers-102"
        (place / "jpg").mkdir(parents=True)
        for number in range(1, 7):
            Image.new("RGB", (50 + number, 40), (40 * number, 30, 200)).save(place / "jpg" / f"image_{number:05d}.jpg")
        savemat(place / "imagelabels.mat", {"labels": [[1, 102, 7, 8, 9, 10]]})
        savemat(place / "setid.mat", {"trnid": [[1, 2, 3, 4]], "valid": [[5, 6]], "tstid": [[6]]})
        with mock.patch("torchvision.datasets.flowers102.check_integrity", return_value=True):
            train_set, test_set = data.load("flowers102", self.folder, 24)
        self.expect_images(train_set, 4, 24, 102)
        self.expect_images(test_set, 2, 24, 102)
        self.assertEqual([train_set[place][1] for place in range(4)], [0, 101, 6, 7])

    @unittest.skipUnless(available("torchvision"), "torchvision is not installed")
    def test_a_missing_folder_is_named(self):
        for name in ("cifar10", "flowers102"):
            with self.assertRaisesRegex(SystemExit, "--folder is missing"):
                data.load(name, None, 32)
            with self.assertRaisesRegex(SystemExit, f"there is no {name} in {self.folder}"):
                data.load(name, self.folder, 32)


@needs_torch
class TrainingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "checkpoint.pt"

    def test_a_resumed_training_has_the_losses_of_an_unbroken_one(self):
        for way, amp in (("eager", "off"), ("vitune", "bf16")):
            whole, first = trained(2, way, amp), trained(1, way, amp)
            first.save(self.path)
            torch.manual_seed(99)
            second = trained(0, way, amp)
            second.load(self.path)
            second.run_epoch()
            self.assertEqual(second.history.losses, whole.history.losses)
            self.assertEqual(second.history.accuracy, whole.history.accuracy)
            self.assertEqual(len(whole.history.losses), 12)

    def test_a_checkpoint_of_another_training_is_refused(self):
        trained(0).save(self.path)
        with self.assertRaisesRegex(SystemExit, "batch 8, not 4"):
            trained(0, of=small(batch=4)).load(self.path)

    def test_steps_of_vitune_have_the_losses_of_eager_ones(self):
        self.assertEqual(trained(1, "vitune").history.losses, trained(1).history.losses)

    def test_it_learns(self):
        run = trained(6, of=small(epochs=6, rate=2e-3))
        self.assertGreater(run.history.accuracy[-1], 0.8)
        self.assertLess(run.history.losses[-1], run.history.losses[0] - 0.2)

    def test_the_rate_rises_and_falls(self):
        of = small(warm_up=0.1)
        rates = [recipe.rate_at(of, done) for done in (0, 0.05, 0.1, 0.55, 1)]
        middle = (of.rate + of.least_rate) / 2
        for found, want in zip(rates, (of.least_rate, middle, of.rate, middle, of.least_rate)):
            self.assertAlmostEqual(found, want)

    def test_biases_norms_and_positions_do_not_decay(self):
        found = recipe.model_of(small())
        decays, others = recipe.optimizer_of(small(), found).param_groups
        self.assertEqual((decays["weight_decay"], others["weight_decay"]), (6e-2, 0.0))
        self.assertEqual(len(decays["params"]) + len(others["params"]), len(list(found.parameters())))
        self.assertTrue(any(each is found.positions for each in others["params"]))
        self.assertTrue(all(each.ndim > 1 for each in decays["params"]))

    @unittest.skipUnless(available("sklearn") and available("tqdm"), "scikit-learn or tqdm is not installed")
    def test_the_command_trains_stops_and_goes_on(self):
        folder = self.path.parent / "run"
        common = ["--data", "digits", "--device", "cpu", "--batch", "700", "--out", str(folder)]
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            train.main([*common, "--epochs", "1"])
            with self.assertRaisesRegex(SystemExit, "--resume goes on from it"):
                train.main([*common, "--epochs", "1"])
            with self.assertRaisesRegex(SystemExit, "epochs 1, not 2"):
                train.main([*common, "--epochs", "2", "--resume"])
            train.main([*common, "--epochs", "1", "--resume"])
        self.assertRegex(out.getvalue(), r"epoch   1: loss \d\.\d+, accuracy +\d+\.\d %")
        self.assertIn("goes on after epoch 1", out.getvalue())
        self.assertTrue((folder / "checkpoint.pt").exists())
        self.assertEqual((folder / "curves.png").exists(), available("matplotlib"))


@needs_torch
class CompareTest(unittest.TestCase):
    def test_the_band_is_the_range_of_fp32_and_half_a_point(self):
        exact = [0.90, 0.92, 0.91]
        for mean, inside in ((0.91, True), (0.896, True), (0.894, False), (0.924, True), (0.926, False)):
            self.assertEqual(compare.in_band(exact, [mean] * 3), inside, mean)

    def test_rows_are_held_against_fp32(self):
        with mock.patch.object(compare, "SEEDS", (0,)):
            found = compare.Comparison(small(epochs=1), (patterns(24, 0), patterns(16, 1)), torch.device("cpu"))
            exact, amp, fault = (found.row(name) for name in ("fp32", "amp", "fault"))
        self.assertEqual((exact["distance"], exact["in_band"], exact["follows"], amp["follows"]), (0, True, True, True))
        self.assertGreater(amp["distance"], 0)
        self.assertGreater(fault["distance"], 0)
        self.assertIn("PyTorch, fp32", compare.line_of(exact))

    def test_losses_follow_that_are_as_near_as_those_of_amp(self):
        exact, amp, near, far = [2.0, 1.5, 1.0], [2.001, 1.5, 0.999], [2.0, 1.499, 1.0], [2.0, 1.504, 1.001]
        bound = compare.distance(exact, amp)
        self.assertAlmostEqual(bound, 0.002 / 3)
        self.assertEqual([compare.follows(bound, compare.distance(exact, each)) for each in (exact, amp, near, far)], [True, True, True, False])

    def test_a_fault_leaves_biases_as_they_were(self):
        found = recipe.model_of(small())
        compare.WAYS["fault"].change(found)
        frozen = {name for name, weight in found.named_parameters() if not weight.requires_grad}
        self.assertEqual(frozen, {name for name, _ in found.named_parameters() if name.endswith("bias") and "norm" not in name})
        self.assertIn("blocks.1.mlp.0.bias", frozen)


if __name__ == "__main__":
    unittest.main()
