# benchmarks/programs/__init__.py -- Programs that train as people do it, each with one line for vitune.
# SPDX-License-Identifier: Apache-2.0
