# benchmarks/peers/__init__.py -- vitune beside everything a PyTorch user could take in its place.
# SPDX-License-Identifier: Apache-2.0
"""Measures vitune and its peers on the same problems, on the same data, in the same rounds.

    benchmarks/peers/run.py --json peers.json --md peers.md

README.md beside this file says what is measured and how. Reading and tabulating a result needs the
standard library only; measuring needs PyTorch with a CUDA device, and Triton.
"""
