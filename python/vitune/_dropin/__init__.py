# python/vitune/_dropin/__init__.py -- What install() puts in PyTorch's place.
# SPDX-License-Identifier: Apache-2.0
