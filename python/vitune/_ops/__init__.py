# python/vitune/_ops/__init__.py -- vitune's operators on PyTorch's tensors.
# SPDX-License-Identifier: Apache-2.0
