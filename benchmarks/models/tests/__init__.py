# benchmarks/models/tests/__init__.py -- Tests of the program that measures whole models; no GPU.
# SPDX-License-Identifier: Apache-2.0
