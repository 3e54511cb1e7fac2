# benchmarks/models/zoo.py -- Builds a model with random weights, and images for it.
# SPDX-License-Identifier: Apache-2.0
"""The same weights for a name at every run. No package's weights are fetched."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

#: Built for another size than the usual one of their configuration.
_SIZES = {"vit_large_patch14_reg4_dinov2": 518}


class _Hidden(nn.Module):
    """A model of transformers whose answer is the tensor of its last layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(pixel_values=images).last_hidden_state


def _timm(name: str) -> tuple[nn.Module, int]:
    import timm

    # Else Swin, Hiera and others do not call scaled_dot_product_attention; read as a model is built.
    timm.layers.set_fused_attn(True, experimental=True)
    name, _, wanted = name.partition("@")
    size = int(wanted) if wanted else _SIZES.get(name)
    model = timm.create_model(name, pretrained=False, **({"img_size": size} if size else {}))
    return model, size or model.pretrained_cfg["input_size"][-1]


def _torchvision(name: str) -> tuple[nn.Module, int]:
    import torchvision

    return torchvision.models.get_model(name, weights=None), 224


_MINI = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "image_size": 64}
#: The base models: each package's classes, and the values of their configurations that are no defaults.
_OF_TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit_base": ("ViT", {}),
    "dinov2_base": ("Dinov2", {}),
    "siglip_base": ("SiglipVision", {}),
    "clip_vit_base": ("CLIPVision", {}),
    "vit_mini": ("ViT", _MINI),
    "siglip_mini": ("SiglipVision", _MINI),
}


def _transformers(name: str) -> tuple[nn.Module, int]:
    import transformers

    kind, differs = _OF_TRANSFORMERS[name]
    config = getattr(transformers, f"{kind}Config")(**differs)
    more = {"add_pooling_layer": False} if kind == "ViT" else {}
    model = getattr(transformers, f"{kind}Model")._from_config(config, attn_implementation="sdpa", **more)
    return _Hidden(model), config.image_size


def _fill(model: nn.Module) -> None:
    """Weights under which every layer shows in the answer.

    Some start so small that they hide what lies before them: LayerScale at 1e-5, a head of zeros
    or of a thousandth, whose bias would then be all of the answer.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and weight.std() < 1e-3:
                weight.normal_(std=0.02)
            if weight.numel() < 2 or not (weight == weight.flatten()[0]).all():
                continue
            if "gamma" in name.rpartition(".")[2]:
                weight.uniform_(0.5, 1.5)
            elif weight.flatten()[0] == 0:
                weight.normal_(std=0.02)


def fresh(name: str, device: str) -> tuple[nn.Module, int]:
    """The model in fp32 as its package initialises it, and the side of its square images; timm's for another side as
    "vit_base_patch16_224@512"."""
    package, _, plain = name.rpartition("/")
    maker = {"": _timm, "torchvision": _torchvision, "transformers": _transformers}[package]
    torch.manual_seed(0)
    try:
        with torch.device(device):  # random numbers for a large model take seconds on the CPU
            model, size = maker(plain)
    except (RuntimeError, TypeError):  # one that computes with NumPy while it is built
        model, size = maker(plain)
    return model.to(device), size


def build(name: str, device: str) -> tuple[nn.Module, int]:
    """The model in bf16, ready to infer, and the side of its square images."""
    model, size = fresh(name, device)
    _fill(model.eval())
    return model.bfloat16(), size


def images(batch: int, size: int, device: str) -> Tensor:
    """The same at every run."""
    torch.manual_seed(batch)
    return torch.randn(batch, 3, size, size, device=device).bfloat16()
