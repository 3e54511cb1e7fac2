# python/vitune/_compile/patterns/__init__.py -- The fusion patterns, a file each.
# SPDX-License-Identifier: Apache-2.0
