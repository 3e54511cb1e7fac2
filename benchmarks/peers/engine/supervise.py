# benchmarks/peers/engine/supervise.py -- Watches the measuring process, starts it anew if it dies.
# SPDX-License-Identifier: Apache-2.0
"""This process opens no CUDA, so nothing that happens on the GPU can take the results with it."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

#: Started this often, something is wrong that leaving peers out does not cure.
MOST_STARTS = 8


def _at_work(path: pathlib.Path) -> dict[str, str]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _wait(
    process: subprocess.Popen[bytes], journal: pathlib.Path, stall: float, until: float, poll: float
) -> str | None:
    """Waits for the end; what to blame if it did not end by itself."""
    seen, since = None, time.time()
    while process.poll() is None:
        time.sleep(poll)
        stamp, now = _at_work(journal), time.time()
        if stamp != seen:
            seen, since = stamp, now
        if now - since > stall:
            process.kill()
            process.wait()
            return f"no progress for {stall:.0f} s: stopped"
        if now > until + stall:
            process.kill()
            process.wait()
            return "the time was over long ago: stopped"
    return None


def watch(
    start: Callable[[bool], Sequence[str]],
    journal: pathlib.Path,
    excluded: pathlib.Path,
    until: float,
    stall: float = 90.0,
    poll: float = 0.25,
) -> int:
    """Runs the command that `start(resume)` gives until it ends well; its exit status.

    excluded: the file of what not to run, {problem: {peer: why}}, to which what ended a session is
    added. until: time.time() after which no new session is started. stall: seconds without a step
    (a problem, a peer, a stage) after which a session is taken for hung.
    """
    status = 1
    for number in range(MOST_STARTS):
        journal.unlink(missing_ok=True)
        process = subprocess.Popen(start(number > 0))
        try:
            blamed = _wait(process, journal, stall, until, poll)
        except KeyboardInterrupt:
            process.wait()
            return 130
        status = process.returncode
        at_work = _at_work(journal)
        if status == 0 or not at_work or status == -signal.SIGINT:
            break
        reason = blamed or f"the process died (exit status {status})"
        print(f"peers: {reason}: {at_work}; going on without it", file=sys.stderr, flush=True)
        barred = json.loads(excluded.read_text())
        barred.setdefault(at_work["problem"], {})[at_work["peer"]] = (
            f"failed: {reason} at its {at_work['stage']}"
        )
        excluded.write_text(json.dumps(barred))
        if time.time() > until:
            break
    journal.unlink(missing_ok=True)
    return status
