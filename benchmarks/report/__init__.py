# benchmarks/report/__init__.py -- The program behind `vitune report`: one HTML page of what was measured.
# SPDX-License-Identifier: Apache-2.0
