# python/vitune/_compile/__init__.py -- The backend of vitune.compile, from graph to report.
# SPDX-License-Identifier: Apache-2.0
