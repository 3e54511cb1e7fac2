# benchmarks/peers/attention/__init__.py -- Attention: problems, operands, fp64 reference, peers.
# SPDX-License-Identifier: Apache-2.0
