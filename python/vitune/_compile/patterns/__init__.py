# python/vitune/_compile/patterns/__init__.py -- What is looked for in graphs and put in its place: the language of patterns, an operator's a file, and what of a graph they go by.
# SPDX-License-Identifier: Apache-2.0
