# benchmarks/peers/tests/__init__.py -- Tests of the comparison; none of them needs a GPU.
# SPDX-License-Identifier: Apache-2.0
