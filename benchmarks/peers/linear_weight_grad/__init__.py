# benchmarks/peers/linear_weight_grad/__init__.py -- Weight gradients of linear layers: problems, operands, fp64 reference, peers.
# SPDX-License-Identifier: Apache-2.0
