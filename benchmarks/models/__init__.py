# benchmarks/models/__init__.py -- Whole models with vitune's attention beside PyTorch's own.
# SPDX-License-Identifier: Apache-2.0
"""What reaches a user: time per forward pass of whole models, eager, as CUDA graphs and compiled, and where it goes.

    benchmarks/models/run.py --json models.json
    benchmarks/models/page.py models.json > docs/models.md

Every answer is compared with the model in fp32 first. Needs PyTorch and timm; torchvision and
transformers for a few rows. Nothing is downloaded: weights are random.
"""
