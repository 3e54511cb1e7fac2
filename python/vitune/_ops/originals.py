# python/vitune/_ops/originals.py -- PyTorch's own functions, taken before anything of ours stands in for them.
# SPDX-License-Identifier: Apache-2.0
"""Under their names in PyTorch are ours while vitune is installed; what calls PyTorch, or looks for its calls, takes them from here."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

attention: Any = F.scaled_dot_product_attention
attention_op: Any = torch.ops.aten.scaled_dot_product_attention.default
layer_norm: Any = F.layer_norm
rms_norm: Any = F.rms_norm
heads: Any = torch._native_multi_head_attention
encoder_layer: Any = torch._transformer_encoder_layer_fwd
