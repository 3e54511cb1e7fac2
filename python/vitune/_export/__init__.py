# python/vitune/_export/__init__.py -- Whole models as files: recording, lowering to a file's nodes, the file, the reference interpreter.
# SPDX-License-Identifier: Apache-2.0
