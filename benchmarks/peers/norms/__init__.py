# benchmarks/peers/norms/__init__.py -- LayerNorm and GroupNorm: problems, operands, fp64 reference, peers.
# SPDX-License-Identifier: Apache-2.0
