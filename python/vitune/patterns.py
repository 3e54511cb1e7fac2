# python/vitune/patterns.py -- Patterns of one's own for vitune.compile(): trees of calls that an operator stands for.
# SPDX-License-Identifier: Apache-2.0
"""docs/python.md has an example. PyTorch is imported with this module."""
from ._compile.patterns.every import register
from ._compile.patterns.match import FusionPattern, Match, NoMatch
from ._compile.patterns.tree import Either, Found, Steps, Tree
from ._compile.patterns.own import TreePattern
from ._ops.group_norm import text_of as group_norm_problem
from ._ops.linear import text_of as linear_problem
from ._ops.norm import text_of as norm_problem

__all__ = ["Either", "Found", "FusionPattern", "Match", "NoMatch", "Steps", "Tree", "TreePattern", "group_norm_problem", "linear_problem",
           "norm_problem", "register"]
