# benchmarks/report/tests/__init__.py -- Tests of the report; those of pictures need matplotlib.
# SPDX-License-Identifier: Apache-2.0
