# benchmarks/train_models/__init__.py -- Training steps of whole models: PyTorch's own ways beside vitune's.
# SPDX-License-Identifier: Apache-2.0
"""Time of a step (forward, cross entropy, backward, AdamW), as Python calls it and as one CUDA graph, its memory, and where it goes.

    benchmarks/train_models/run.py --json train_models.json
    benchmarks/train_models/page.py train_models.json > docs/training.md

Needs PyTorch and timm. Nothing is downloaded: weights are random, images and labels are generated. What it has in common with
benchmarks/models (the clock, rounds, the watching process) is imported from there.
"""
