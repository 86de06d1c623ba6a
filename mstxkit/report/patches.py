"""What autopatch reached in a run, as lines of text: how much in how many processes, and what failed, once each."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .escape import for_rich

_PATH_LIMIT = 160


def patch_lines(patches: list[dict[str, Any]]) -> list[str]:
    """Lines from the rows of `Run.patches()`, as dicts; none for a framework that no process has imported."""
    by_framework: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in patches:
        by_framework[row["framework"]].append(row)
    return [line for name, rows in sorted(by_framework.items()) for line in _lines(name, rows)]


def _lines(framework: str, rows: list[dict[str, Any]]) -> list[str]:
    if not any(row["state"] in ("applied", "failed") for row in rows):
        return []
    applied = {row["path"] for row in rows if row["state"] == "applied"}
    processes = {(row["host"], row["pid"]) for row in rows if row["state"] == "applied"}
    declared = {row["path"] for row in rows}
    counted = f"{len(applied)} of {len(declared)} targets applied, in {len(processes)} processes"
    lines = [f"autopatch {for_rich(framework, _PATH_LIMIT)}: {counted}"]
    failed = {(row["path"], row["reason"], row["detail"]) for row in rows if row["state"] == "failed"}
    for path, reason, detail in sorted(failed):
        told = f"{path}: {reason}" + (f" ({detail})" if detail else "")
        lines.append(f"  not reached: {for_rich(told, _PATH_LIMIT)}")
    return lines
