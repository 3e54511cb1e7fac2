# python/vitune/_train/__init__.py -- Whole steps of training, each as one CUDA graph. Private: vitune.train_step() is the way in.
# SPDX-License-Identifier: Apache-2.0
