# examples/train_cct/__main__.py -- python -m train_cct.
# SPDX-License-Identifier: Apache-2.0
from .train import main

main()
