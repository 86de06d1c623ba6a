"""Processes of ours beside a run: who judges it, who watches."""

from __future__ import annotations

import os
from pathlib import Path

JUDGE, WATCHMAN = "mstxkit.judging.judge_process", "mstxkit.incidents.watchman"


def pids(run: Path, *modules: str) -> list[int]:
    """Of the processes that were started with one of these modules and this run among their words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(run) in words and any(module.encode() in words for module in modules):
            found.append(int(folder.name))
    return found
