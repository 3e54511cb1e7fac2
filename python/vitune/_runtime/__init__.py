# python/vitune/_runtime/__init__.py -- libvitune by ctypes: library, contexts, errors, the command.
# SPDX-License-Identifier: Apache-2.0
