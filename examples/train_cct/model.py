# examples/train_cct/model.py -- Compact convolutional transformers (CCT), with their authors' block.
# SPDX-License-Identifier: Apache-2.0
"""After Hassani et al., "Escaping the Big Data Paradigm with Compact Transformers" (arXiv 2104.05704): convolutions make the tokens, and a
learned average of the tokens is classified."""
from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclasses.dataclass(frozen=True)
class Size:
    """CCT-14/7x2 has 14 blocks behind two convolutions of 7 x 7."""

    blocks: int
    width: int
    heads: int
    ratio: int  #: hidden width of the MLP over the width
    kernels: tuple[int, ...]  #: of the convolutions
    stride: int


SIZES = {
    "cct_14_7x2": Size(blocks=14, width=384, heads=6, ratio=3, kernels=(7, 7), stride=2),
    "cct_7_3x1": Size(blocks=7, width=256, heads=4, ratio=2, kernels=(3,), stride=1),
    "cct_2_3x1": Size(blocks=2, width=128, heads=2, ratio=1, kernels=(3,), stride=1),
}
_PLANES = 64  #: between two convolutions


class Tokenizer(nn.Sequential):
    """Images [B, 3, H, W] to tokens [B, N, width]: each convolution is followed by ReLU and a pooling that halves both sides."""

    def __init__(self, size: Size) -> None:
        planes = [3, *[_PLANES] * (len(size.kernels) - 1), size.width]
        super().__init__(*(
            nn.Sequential(nn.Conv2d(before, after, kernel, size.stride, kernel // 2, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
            for kernel, before, after in zip(size.kernels, planes, planes[1:])))

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Self-attention whose weights after softmax are dropped at a rate."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        return self.proj(found.transpose(1, 2).flatten(2))


class DropPath(nn.Module):
    """Drops a branch for whole images, and makes it larger for the others, so that its mean stays."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        return x * x.new_empty(len(x), 1, 1).bernoulli_(1 - self.rate).div_(1 - self.rate)


class Block(nn.Module):
    """As the authors wrote it: the second norm's result, not its operand, is what the MLP's branch is added to."""

    def __init__(self, size: Size, attention_dropout: float, drop_path: float, gelu: str) -> None:
        super().__init__()
        hidden = size.width * size.ratio
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.attention = Attention(size.width, size.heads, attention_dropout)
        self.mlp = nn.Sequential(nn.Linear(size.width, hidden), nn.GELU(gelu), nn.Linear(hidden, size.width))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm2(x + self.drop_path(self.attention(self.norm1(x))))
        return x + self.drop_path(self.mlp(x))


class CCT(nn.Module):
    """Images [B, 3, image, image] to logits [B, classes]."""

    def __init__(self, name: str, image: int, classes: int, attention_dropout: float = 0.1, drop_path: float = 0.1, gelu: str = "none") -> None:
        """name: one of SIZES. image: side, in pixels. drop_path: rate of the last block; the first one's is 0. gelu: "none" is the exact
        function, "tanh" the approximation."""
        super().__init__()
        size = SIZES[name]
        self.tokenizer = Tokenizer(size)
        with torch.no_grad():
            tokens = self.tokenizer(torch.zeros(1, 3, image, image)).shape[1]
        self.positions = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, tokens, size.width), std=0.2))
        rates = [drop_path * place / (size.blocks - 1) for place in range(size.blocks)]
        self.blocks = nn.Sequential(*(Block(size, attention_dropout, rate, gelu) for rate in rates))
        self.norm, self.pool, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, 1), nn.Linear(size.width, classes)
        self.apply(_initialise)

    def forward(self, images: Tensor) -> Tensor:
        x = self.norm(self.blocks(self.tokenizer(images) + self.positions))
        weights = self.pool(x).softmax(dim=1)
        return self.head((weights.transpose(1, 2) @ x).squeeze(1))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight)
