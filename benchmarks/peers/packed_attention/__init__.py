# benchmarks/peers/packed_attention/__init__.py -- Attention of packed sequences: problems, operands, fp64 reference, peers.
# SPDX-License-Identifier: Apache-2.0
