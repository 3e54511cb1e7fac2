# python/vitune/_compile/graph/__init__.py -- What patterns stand on: matches, mutations, layouts, folded parameters, benchmarks.
# SPDX-License-Identifier: Apache-2.0
