# benchmarks/tuner/__init__.py -- How good `vitune tune` is at its job: the same winner again, how near to the best, in which time.
# SPDX-License-Identifier: Apache-2.0
