# python/tests/test_torch_compile_dead_rows.py -- Rows that nothing reads are not computed: models, and programs of every rule.
# SPDX-License-Identifier: Apache-2.0
import copy
import random
import unittest

import vitune

from .support import torch
from .test_torch_compile import CompileCase, vit

if torch is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch.nn.functional as F
from torch import fx, nn

from vitune._compile.patterns import dead_rows
from vitune._compile.patterns.tree import is_op

try:
    import timm
except ImportError:
    timm = None
try:
    import torchvision
except ImportError:
    torchvision = None
try:
    import transformers
except ImportError:
    transformers = None


def rows_of(graph):
    """What linear layers compute, in rows of their results."""
    return sum(node.meta["example_value"].shape[:-1].numel() for node in graph.nodes if is_op(node, "linear"))


class Seen:
    """A compiler that leaves rows out, and nothing else."""

    def __init__(self):
        self.rows, self.left, self.module = (), None, None

    def __call__(self, module, inputs):
        before = rows_of(module.graph)
        self.left = dead_rows.leave_out(module)
        self.rows, self.module = (before, rows_of(module.graph)), module
        module.graph.lint()
        module.recompile()
        return module


class _Values(fx.Interpreter):
    def run_node(self, node):
        node.meta["example_value"] = super().run_node(node)
        return node.meta["example_value"]


def left_out_of(function, *inputs, trains=False):
    """What is left out of a program, and the program that is left."""
    module = fx.symbolic_trace(function)
    with torch.set_grad_enabled(trains):
        _Values(module).run(*inputs)
    seen = Seen()
    seen(module, inputs)
    return seen.left, module


_SMALL = {"img_size": 32, "depth": 2}
_HF = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 32, "patch_size": 8}


class Pooled(nn.Module):
    """What most programs take of a model's outputs."""

    def __init__(self, model, take):
        super().__init__()
        self.model, self.take = model, take

    def forward(self, x):
        return self.take(self.model(x))


def _timm(name, **keywords):
    return lambda: timm.create_model(name, **{**_SMALL, **keywords})


def _hf(name, kind, take=None):
    def make():
        model = getattr(transformers, name)(getattr(transformers, kind)(**_HF))
        return model if take is None else Pooled(model, take)
    return make


#: Name -> (how it is made, rows of its linear layers for two images: the model's and what is left).
TIMM_MODELS = {
    "ViT": (_timm("vit_tiny_patch16_224"), (82, 58)), "ViT, mean of tokens": (_timm("vit_tiny_patch16_224", global_pool="avg"), (82, 82)),
    "ViT, features": (_timm("vit_tiny_patch16_224", num_classes=0), (80, 56)),
    "DeiT, distilled": (_timm("deit_tiny_distilled_patch16_224"), (100, 76)), "DeiT3": (_timm("deit3_small_patch16_224"), (82, 58)),
    "BEiT, mean of tokens": (_timm("beit_base_patch16_224"), (82, 82)),
    "BEiT": (_timm("beit_base_patch16_224", global_pool="token"), (82, 58)),
    "EVA-02": (_timm("eva02_tiny_patch14_224", img_size=28, global_pool="token"), (80, 56)),
    "CLIP": (_timm("vit_base_patch32_clip_224", img_size=64), (82, 58)),
    "DINOv2": (_timm("vit_small_patch14_dinov2", img_size=28), (80, 56)),
    "DINOv3, mean of tokens": (_timm("vit_small_patch16_dinov3", img_size=64), (336, 336)),
    "SigLIP, attention pooling": (_timm("vit_base_patch16_siglip_224"), (80, 80))}
HF_MODELS = {
    "ViT": (_hf("ViTForImageClassification", "ViTConfig"), (410, 282)),
    "CLIP, all it has": (_hf("CLIPVisionModel", "CLIPVisionConfig"), (408, 408)),
    "CLIP": (_hf("CLIPVisionModel", "CLIPVisionConfig", lambda out: out.pooler_output), (408, 280)),
    "DINOv2, class token": (_hf("Dinov2Model", "Dinov2Config", lambda out: out.last_hidden_state[:, 0]), (408, 280)),
    "DINOv2, classes of all tokens": (_hf("Dinov2ForImageClassification", "Dinov2Config"), (410, 410)),
    "DeiT": (_hf("DeiTForImageClassificationWithTeacher", "DeiTConfig"), (436, 308))}
TORCHVISION_MODELS = {"ViT": (lambda: torchvision.models.VisionTransformer(32, 8, 2, 2, 64, 128), (138, 74))}


class ModelTest(unittest.TestCase):
    def expect(self, models):
        for name, (make, rows) in models.items():
            with self.subTest(name), torch.no_grad():
                torch.manual_seed(1)
                torch._dynamo.reset()
                model, seen = make().eval(), Seen()
                side = getattr(getattr(model, "patch_embed", None), "img_size", (32, 32))
                x = torch.randn(2, 3, *side)
                want, got = model(x), torch.compile(model, backend=seen, fullgraph=True)(x)
                torch.testing.assert_close(got, want, atol=2e-5, rtol=2e-5)
                self.assertEqual(seen.rows, rows)
                self.assertEqual(seen.left is None, rows[0] == rows[1])

    @unittest.skipIf(timm is None, "timm is not installed")
    def test_models_of_timm_compute_the_rows_that_they_read(self):
        self.expect(TIMM_MODELS)

    @unittest.skipIf(transformers is None, "transformers is not installed")
    def test_models_of_transformers_compute_the_rows_that_they_read(self):
        self.expect(HF_MODELS)

    @unittest.skipIf(torchvision is None, "torchvision is not installed")
    def test_models_of_torchvision_compute_the_rows_that_they_read(self):
        self.expect(TORCHVISION_MODELS)


class ProgramTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.x, self.weight = torch.randn(2, 8, 16), torch.randn(16, 16)

    def rows(self, function, *more):
        """How many rows the first layer of a program of x and weight computes for each image; its answers stay what they were."""
        want = function(self.x.clone(), self.weight, *more)
        left, module = left_out_of(function, self.x, self.weight, *more)
        torch.testing.assert_close(module(self.x.clone(), self.weight, *more), want)
        layer = next(node for node in module.graph.nodes if is_op(node, "linear"))
        return layer.meta["example_value"].shape[1]

    def test_selections_in_every_spelling(self):
        for select, count in ((lambda y: y[:, 0], 1), (lambda y: y[:, -1], 1), (lambda y: y[:, 3:5], 2), (lambda y: y[:, :1, :4], 1),
                              (lambda y: y.select(1, 2), 1), (lambda y: torch.select(y, 1, -2), 1), (lambda y: y.narrow(1, 4, 3), 3),
                              (lambda y: y[:, 1:][:, :2], 2), (lambda y: y[:, 2:4][:, 1], 1), (lambda y: y.transpose(0, 1)[0], 1),
                              (lambda y: y.view(2, 8, 4, 4).permute(0, 2, 1, 3)[:, :, 1], 1), (lambda y: y.chunk(2, -1)[1][:, 0], 1),
                              (lambda y: torch.cat([y[:, :1], y[:, 1:] * 2], 1)[:, 0], 1), (lambda y: y.unsqueeze(1)[:, :, 5], 1),
                              (lambda y: y.unflatten(-1, (4, 4)).unbind(2)[1][:, 0], 1), (lambda y: y.flatten(1).view(2, 8, 16)[:, 0], 8)):
            with self.subTest(count):
                self.assertEqual(self.rows(lambda x, weight: select(F.gelu(F.linear(x, weight)) + x)), count)

    def test_what_several_users_read_is_computed_once(self):
        self.assertEqual(self.rows(lambda x, weight: (lambda y: (y[:, 0], y[:, 2] * 2))(F.linear(x, weight))), 3)
        self.assertEqual(self.rows(lambda x, weight: (lambda y: (y[:, 0], y[:, 7]))(F.linear(x, weight))), 8)
        self.assertEqual(self.rows(lambda x, weight: (lambda y: (y[:, 0], y.mean(1)))(F.linear(x, weight))), 8)

    def test_a_result_has_the_type_that_rows_nobody_reads_gave_it(self):
        first = torch.randn(2, 1, 16, dtype=torch.float64)
        self.assertEqual(self.rows(lambda x, weight, first: torch.cat([first, F.linear(x, weight)], 1)[:, 4], first), 8)
        beside = torch.randn(2, 8, 16, dtype=torch.bfloat16)
        self.assertEqual(self.rows(lambda x, weight, beside: torch.cat([beside, F.linear(x, weight)], 2)[:, 4], beside), 1)

    def test_results_share_memory_with_each_other_and_with_what_is_written_as_before(self):
        def copied(x, weight):
            y = F.linear(x, weight)
            return y[:, 0], y.transpose(0, 1).contiguous()[0]

        def reshaped(x, weight):
            y = F.linear(x, weight)
            return y[:, 0], y.transpose(0, 1).reshape((8, 2, 4, 4))[0]

        def written(x, weight):
            y = F.linear(x, weight).transpose(0, 1)
            copies = F.linear(y.contiguous(), weight)[:, 0], y.contiguous()[:, 0]
            y.add_(1)
            return y, *copies

        def viewed(x, weight):
            y = F.linear(x, weight)
            return y[:, 0], y.view(2, 8, 4, 4)[:, 0]
        for function in (copied, reshaped, written, viewed):
            with self.subTest(function.__name__):
                _, module = left_out_of(function, self.x, self.weight)
                want, got = function(self.x, self.weight), module(self.x, self.weight)
                torch.testing.assert_close(got, want)
                for results in (want, got):
                    results[0].zero_()
                torch.testing.assert_close(got, want)

    def test_rows_that_are_most_of_all_are_left_as_they_are(self):
        self.assertEqual(self.rows(lambda x, weight: F.linear(x, weight)[:, 1:]), 8)
        self.assertEqual(self.rows(lambda x, weight: F.linear(x, weight)[:, 4:]), 4)

    def test_what_mixes_rows_is_computed_whole(self):
        for mix in (lambda y: F.layer_norm(y, (8, 16)), lambda y: torch.softmax(y, 1), lambda y: y.transpose(1, 2) @ y,
                    lambda y: y.cumsum(1), lambda y: y - y.mean(1, keepdim=True),
                    lambda y: F.linear(y.transpose(1, 2), self.weight[:8, :8]).transpose(1, 2),
                    lambda y: y.roll(1, 1), lambda y: y.flip(1), lambda y: y[:, ::2], lambda y: y[:, torch.tensor([3, 1])]):
            self.assertEqual(self.rows(lambda x, weight: mix(F.linear(x, weight))[:, 0]), 8)

    def test_what_is_written_in_place_is_computed_whole(self):
        def later(x, weight):
            y = F.linear(x, weight)
            z = y[:, 0]
            y.mul_(2)
            return z
        self.assertEqual(self.rows(later), 8)
        self.assertEqual(self.rows(lambda x, weight: F.linear(x, weight).add_(x)[:, 0]), 8)

    def test_for_a_norm_alone_nothing_changes(self):
        left, module = left_out_of(lambda x, weight: F.linear(F.layer_norm(x, (16,))[:, 0], weight), self.x, self.weight)
        self.assertIsNone(left)
        norm = next(node for node in module.graph.nodes if is_op(node, "layer_norm"))
        self.assertEqual(tuple(norm.meta["example_value"].shape), (2, 8, 16))

    def test_what_nothing_reads_any_more_is_gone(self):
        """A view of the rows that go would be none of those that stay."""
        def run(x, weight):
            y = F.linear(x, weight)
            z = F.linear(torch.cat([y[:, :1], y[:, 1:].reshape(2, 112).view(2, 7, 16) * 2], 1), weight)
            y[:, 1:].reshape(2, 4, 28)
            return z[:, 0]
        self.assertEqual(self.rows(run), 1)
        _, module = left_out_of(run, self.x, self.weight)
        self.assertEqual([node for node in module.graph.nodes if is_op(node, "mul", "view", "reshape")], [])

    def test_a_squeeze_of_all_that_is_one_keeps_its_rows(self):
        """Of one row it would take that dimension too."""
        self.assertEqual(self.rows(lambda x, weight: F.linear(x, weight).unsqueeze(2).squeeze()[:, :1]), 8)
        self.assertEqual(self.rows(lambda x, weight: F.linear(x, weight).squeeze(1)[:, :1]), 8)
        self.assertEqual(self.rows(lambda x, weight: F.linear(x, weight).unsqueeze(2).squeeze(2)[:, :1]), 1)

    def test_a_result_that_shares_an_inputs_memory_shares_it_still(self):
        def run(x, weight):
            return x.contiguous()[:, 2], F.linear(x, weight)[:, 0]
        left, module = left_out_of(run, self.x, self.weight)
        self.assertIsNotNone(left)
        seen, _ = module(self.x, self.weight)
        self.assertEqual(seen.data_ptr(), self.x[:, 2].data_ptr())

    def test_a_layer_of_one_column_that_its_result_does_not_have_is_computed_whole(self):
        self.assertEqual(self.rows(lambda x, weight: F.linear(F.linear(x, weight), weight[0]).unsqueeze(-1)[:, :1]), 8)

    def test_dropout_that_drops_is_computed_whole(self):
        _, module = left_out_of(lambda x, weight: F.dropout(F.linear(x, weight), 0.5, True)[:, 0], self.x, self.weight)
        self.assertEqual([node.meta["example_value"].shape[1] for node in module.graph.nodes if is_op(node, "linear")], [8])

    def test_attention_has_the_queries_that_are_read_and_all_keys(self):
        def program(mask=None, **words):
            def run(x, weight):
                q, k, v = (F.linear(x, weight * scale).view(2, 8, 2, 8).transpose(1, 2) for scale in (1.0, 0.5, 2.0))
                return F.scaled_dot_product_attention(q, k, v, mask, **words).transpose(1, 2).reshape(2, 8, 16)[:, 5]
            return run
        for run, count in ((program(), 1), (program(scale=0.3), 1), (program(torch.randn(2, 2, 8, 8)), 1),
                           (program(torch.randn(8, 8)), 1), (program(torch.randn(1, 8)), 1), (program(is_causal=True), 8)):
            self.assertEqual(self.rows(run), count)

    def test_attention_of_a_tensor_with_itself_reads_all_of_it(self):
        def run(x, weight):
            y = F.linear(x, weight)
            return F.scaled_dot_product_attention(y, y, y)[:, 0]
        self.assertEqual(self.rows(run), 8)

    def test_attention_that_is_written_out_has_the_queries_that_are_read(self):
        def run(x, weight):
            q, k, v = (F.linear(x, weight * scale) for scale in (1.0, 0.5, 2.0))
            return ((q * 0.25) @ k.transpose(-2, -1) + x @ x.transpose(-2, -1)).softmax(-1).matmul(v)[:, 0]
        self.assertEqual(self.rows(run), 1)

    def test_random_programs_answer_as_before(self):
        rng, fewer = random.Random(11), 0
        for number in range(80):
            seed = rng.random()
            with self.subTest(number):
                def program(x, weight):
                    return _random_program(random.Random(seed), x, weight)
                before = fx.symbolic_trace(program)
                want = before(self.x, self.weight)
                left, module = left_out_of(program, self.x, self.weight)
                torch.testing.assert_close(module(self.x, self.weight), want)
                fewer += left is not None
        self.assertGreater(fewer, 20)

    def test_random_programs_have_gradients_as_before(self):
        rng, fewer = random.Random(12), 0
        given = [tensor.clone().requires_grad_() for tensor in (self.x, self.weight)]
        for number in range(80):
            seed = rng.random()
            with self.subTest(number):
                def program(x, weight):
                    return _random_program(random.Random(seed), x, weight)

                def grads(module):
                    results = [result for result in module(*given) if result.requires_grad]
                    return torch.autograd.grad(results, given, [torch.cos(result) for result in results], allow_unused=True)
                left, module = left_out_of(program, *given, trains=True)
                torch.testing.assert_close(grads(module), grads(fx.symbolic_trace(program)), rtol=1e-4, atol=1e-5)
                fewer += left is not None
        self.assertGreater(fewer, 20)

    def test_what_has_zeros_as_its_gradient_has_them_still(self):
        given = [tensor.clone().requires_grad_() for tensor in (self.x, self.weight, torch.randn(16, 16))]

        def run(x, weight, other):
            return F.linear(torch.cat([x[:, :1], F.linear(x, other)], 1), weight)[:, 0]
        left, module = left_out_of(run, *given, trains=True)
        self.assertIsNone(left)
        grads = [torch.autograd.grad(each(*given).sum(), given, allow_unused=True) for each in (run, module)]
        torch.testing.assert_close(grads[1], grads[0])
        self.assertIsNotNone(left_out_of(run, *map(torch.detach, given))[0])
        self.assertIsNotNone(left_out_of(run, *given[:2], given[2].detach(), trains=True)[0])

    def test_rows_that_are_taken_under_no_grad_first_have_a_gradient_elsewhere(self):
        x, weight = (tensor.clone().requires_grad_() for tensor in (self.x, self.weight))

        def run(x, weight):
            with torch.no_grad():
                still = F.linear(x, weight)[:, 0]
            return F.linear(x, weight)[:, 0] + still
        seen = Seen()
        torch._dynamo.reset()
        grads = [torch.autograd.grad(each(x, weight).square().sum(), (x, weight))
                 for each in (run, torch.compile(run, backend=seen, fullgraph=True))]
        self.assertEqual(seen.rows, (32, 4))
        torch.testing.assert_close(grads[1], grads[0])

    def test_a_factor_of_each_sample_that_is_made_of_a_branch_reads_no_rows_of_it(self):
        def run(x, weight):
            y = F.linear(x, weight)
            return (x + y * y.new_empty((2, 1, 1)).fill_(0.5))[:, 0]
        self.assertEqual(self.rows(run), 1)


def _random_program(rng, x, weight):
    """Of values [2, 8, 16], of which the last are read in part."""
    values = [x]
    for _ in range(rng.randint(3, 9)):
        y, other = values[-1], rng.choice(values)
        values.append(rng.choice((
            lambda: F.linear(y, weight) * 0.2, lambda: y + other, lambda: F.layer_norm(y, (16,)), lambda: F.gelu(y) * other,
            lambda: F.linear(y.view(2, 8, 4, 4).flatten(2), weight) * 0.2, lambda: y.transpose(1, 2).contiguous().transpose(1, 2),
            lambda: torch.cat([y[:, :3], other[:, 3:]], 1), lambda: torch.cat(y.chunk(2, -1)[::-1], -1),
            lambda: F.scaled_dot_product_attention(y, other, other), lambda: y - other.mean(1, keepdim=True) * 0.5))())
    first = rng.randrange(8)
    return values[-1][:, first:first + rng.randint(1, 3)], rng.choice(values)[:, rng.randrange(8)]


@unittest.skipIf(timm is None, "timm is not installed")
class CompiledTest(CompileCase):
    leaves_rows_out = True

    def test_a_compiled_model_says_what_it_leaves_out_and_answers_as_before(self):
        model, x = vit().bfloat16(), torch.randn(2, 3, 32, 32, dtype=torch.bfloat16)
        with torch.inference_mode():
            want = model(x)
            got, report = self.compiled(model, x)
        self.expect_close(got, want)
        said = "1 of 5 rows are read, and no others computed, from blocks.1.attn on: 1 x attention, 3 x linear, 2 x layer_norm"
        self.assertEqual([graph.dead_rows for graph in report.graphs], [said])
        self.assertIn(f"\n   {said}\n", str(report))
        self.assertIn(said, report._repr_html_())

    def test_a_model_that_trains_has_eager_modes_gradients_and_attention_of_all_rows(self):
        said = "1 of 5 rows are read, and no others computed, from blocks.1.attn.proj on: 3 x linear, 2 x layer_norm"
        for drop_path in (0.0, 0.4):
            with self.subTest(drop_path):
                model, x = vit(drop_path_rate=drop_path).train(), torch.randn(4, 3, 32, 32, requires_grad=True)
                eager = copy.deepcopy(model)
                torch.manual_seed(5)
                got, report = self.compiled(model, x)
                self.assertEqual([graph.dead_rows for graph in report.graphs], [said])
                torch.manual_seed(5)
                want = eager(x)
                self.expect_close(got, want)
                ours, theirs = (torch.autograd.grad(y.square().sum(), (x, *each.parameters())) for y, each in ((got, model), (want, eager)))
                for mine, right in zip(ours, theirs):
                    self.assertLessEqual((mine - right).norm().item(), 1e-4 * right.norm().item() + 1e-5)

    def test_batches_of_any_size_are_one_graph(self):
        model = vit()
        with torch.no_grad():
            compiled = vitune.compile(model, fullgraph=True, dynamic=True)
            for images in (2, 3, 5):
                x = torch.randn(images, 3, 32, 32)
                self.expect_close(compiled(x), model(x))
        self.assertEqual([bool(graph.dead_rows) for graph in vitune.report(compiled).graphs], [True])

    def test_a_result_among_whose_elements_dead_rows_lay_lies_without_them(self):
        model, x = Pooled(vit(num_classes=0, global_pool=""), lambda tokens: tokens[:, 0]), torch.randn(2, 3, 32, 32)
        with torch.no_grad():
            want = model(x)
            got, report = self.compiled(model, x)
        self.expect_close(got, want)
        self.assertEqual((want.stride(), got.stride()), ((5 * 192, 1), (192, 1)))
        self.assertTrue(report.graphs[0].dead_rows)

    def test_under_autocast_rows_are_left_out_too(self):
        model, x = vit(), torch.randn(2, 3, 32, 32)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            want = model(x)
            got, report = self.compiled(model, x)
        self.expect_close(got, want)
        self.assertTrue(report.graphs[0].dead_rows)


if __name__ == "__main__":
    unittest.main()
