# benchmarks/peers/attention_backward/__init__.py -- Gradients of attention: problems, operands, fp64 reference, peers.
# SPDX-License-Identifier: Apache-2.0
