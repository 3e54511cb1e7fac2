# benchmarks/train_models/cct.py -- Compact convolutional transformers, which timm does not have.
# SPDX-License-Identifier: Apache-2.0
"""After Hassani et al., "Escaping the Big Data Paradigm with Compact Transformers" (arXiv 2104.05704): convolutions make the tokens,
a learned average of them the features. With random weights."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A model's sizes; attention_dropout and drop_path as it is trained."""

    image: int
    kernels: tuple[int, ...]  #: of each convolution
    strides: tuple[int, ...]
    width: int
    heads: int
    layers: int
    ratio: int  #: of the hidden width
    authors: bool = True  #: the residual after attention is what the norm gives, as the authors' code has it
    attention_dropout: float = 0.0
    drop_path: float = 0.0  #: of the last layer, from 0 at the first


class _Layer(nn.Module):
    def __init__(self, recipe: Recipe, drop_path: float) -> None:
        super().__init__()
        width, hidden = recipe.width, recipe.width * recipe.ratio
        self.heads, self.authors = recipe.heads, recipe.authors
        self.attention_dropout, self.drop_path = recipe.attention_dropout, drop_path
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def _dropped(self, x: Tensor) -> Tensor:
        """Whole samples at random, the others larger."""
        if not self.training or not self.drop_path:
            return x
        kept = 1 - self.drop_path
        return x * x.new_empty(x.shape[0], 1, 1).bernoulli_(kept).div_(kept)

    def _attention(self, x: Tensor) -> Tensor:
        images, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(images, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.attention_dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        return self.proj(found.transpose(1, 2).reshape(images, tokens, width))

    def _mlp(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._dropped(self._attention(self.norm1(x)))
        if self.authors:
            x = self.norm2(x)
            return x + self._dropped(self._mlp(x))
        return x + self._dropped(self._mlp(self.norm2(x)))


class CCT(nn.Module):
    """Images to logits."""

    def __init__(self, recipe: Recipe, classes: int = 1000) -> None:
        super().__init__()
        planes = [3, *[64] * (len(recipe.kernels) - 1), recipe.width]
        stages = [
            (nn.Conv2d(planes[place], planes[place + 1], kernel, stride, kernel // 2, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            for place, (kernel, stride) in enumerate(zip(recipe.kernels, recipe.strides))
        ]
        self.num_classes, self.image = classes, recipe.image
        self.tokenizer = nn.Sequential(*(module for stage in stages for module in stage))
        side = recipe.image
        for stride in recipe.strides:
            side = -(-side // (2 * stride))
        self.positions = nn.Parameter(torch.empty(1, side * side, recipe.width).normal_(std=0.2))
        last = max(1, recipe.layers - 1)
        self.layers = nn.Sequential(*(_Layer(recipe, recipe.drop_path * place / last) for place in range(recipe.layers)))
        self.norm, self.pool, self.head = nn.LayerNorm(recipe.width), nn.Linear(recipe.width, 1), nn.Linear(recipe.width, classes)
        self.apply(_initialise)

    def forward(self, images: Tensor) -> Tensor:
        x = self.layers(self.tokenizer(images).flatten(2).transpose(1, 2) + self.positions)
        x = self.norm(x)
        weights = self.pool(x).softmax(1).transpose(1, 2)
        return self.head((weights @ x).squeeze(1))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight)


_AT_384 = Recipe(384, (7, 7), (2, 2), 384, 6, 14, 3, attention_dropout=0.1, drop_path=0.1)
_PLAIN = dataclasses.replace(_AT_384, authors=False, attention_dropout=0.0, drop_path=0.0)
RECIPES = {
    "cct_14_7x2_384": _AT_384,
    "cct_14_7x2_384_plain": _PLAIN,
    "cct_7_3x1_32": Recipe(32, (3,), (1,), 256, 4, 7, 2),
    "cct_mini": Recipe(16, (3,), (1,), 32, 2, 2, 2),
}
