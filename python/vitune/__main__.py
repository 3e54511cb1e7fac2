# python/vitune/__main__.py -- `python -m vitune`, and the `vitune` that pip puts on PATH: the command in this process's place.
# SPDX-License-Identifier: Apache-2.0
"""The command finds its data from its own place, so it stays beside the library and is not copied to bin/."""
from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._runtime.library import command_beside


#: Tables and the help are the command's alone.
_OTHER_FORMS = {"--csv", "--md", "--help", "-h"}


def main() -> NoReturn:
    """Becomes the command. Exit code 1 if there is none."""
    command = command_beside()  # not PATH: what is found there may be this very program
    if command is None:
        sys.exit("vitune: the command is not beside the package's library: install the package again (pip install"
                 " --force-reinstall), or in a source tree run 'make command'")
    words = sys.argv[1:]
    if words[:1] == ["doctor"] and not _OTHER_FORMS & set(words):
        from ._doctor import run

        sys.exit(run(str(command), words[1:]))
    try:
        os.execv(command, [str(command), *words])
    except OSError as reason:
        sys.exit(f"vitune: cannot run {command}: {reason.strerror}")


if __name__ == "__main__":
    main()
