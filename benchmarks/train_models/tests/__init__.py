# benchmarks/train_models/tests/__init__.py -- Tests of the program that measures training steps.
# SPDX-License-Identifier: Apache-2.0
