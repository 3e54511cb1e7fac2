# examples/train_cct/__init__.py -- Trains compact convolutional transformers: python -m train_cct, from the folder above.
# SPDX-License-Identifier: Apache-2.0
