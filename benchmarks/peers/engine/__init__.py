# benchmarks/peers/engine/__init__.py -- Measures the peers of any operator: rounds, processes, judge, JSON.
# SPDX-License-Identifier: Apache-2.0
"""Knows no operator. What one brings along is in roster.py; the list of them is ../rosters.py."""
