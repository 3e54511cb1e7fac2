# benchmarks/tuner/tests/__init__.py -- Tests of the program that measures the tuner.
# SPDX-License-Identifier: Apache-2.0
