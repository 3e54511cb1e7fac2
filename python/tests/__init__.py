# python/tests/__init__.py -- Makes the tests a package, so that they share support.py.
# SPDX-License-Identifier: Apache-2.0
