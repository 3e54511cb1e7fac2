# benchmarks/peers/norm_backward/__init__.py -- Gradients of LayerNorm in training: problems, operands, fp64 reference, peers.
# SPDX-License-Identifier: Apache-2.0
