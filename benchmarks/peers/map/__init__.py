# benchmarks/peers/map/__init__.py -- Maps: problems, operands, fp64 reference, peers.
# SPDX-License-Identifier: Apache-2.0
