# benchmarks/peers/linear/__init__.py -- Linear layers with what follows them: problems, operands, fp64 reference, peers.
# SPDX-License-Identifier: Apache-2.0
