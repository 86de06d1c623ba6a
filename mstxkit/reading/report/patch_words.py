"""What autopatch reached, in words: how much in how many processes, whether it was called, and what is not there."""

from __future__ import annotations

from typing import Any

from ...store.values import grouped
from .escape import for_terminal
from .sentences import listed

_PATH_LIMIT, _NAMED = 160, 4
_REPLACED = "replaced since"


def lines(patches: list[dict[str, Any]]) -> list[str]:
    """One line and more a framework, safe to show, from the rows of `Run.patches()` as dicts; nothing of a framework
    that no process has imported, unless its version is not known.
    """
    by_framework = grouped(patches, lambda row: str(row["framework"]))
    texts = [line for name, rows in sorted(by_framework.items()) for line in _of_framework(name, rows)]
    return [for_terminal(text, 2 * _PATH_LIMIT) for text in texts]


def _of_framework(framework: str, rows: list[dict[str, Any]]) -> list[str]:
    applied = [row for row in rows if row["state"] == "applied"]
    failed = {(row["path"], row["reason"], row["detail"]) for row in rows if row["state"] == "failed"}
    paths, processes = {row["path"] for row in applied}, {(row["host"], row["pid"]) for row in applied}
    # What some process has skipped is not in this version, or was not asked for. A path can be declared twice.
    tried = paths | {path for path, _, _ in failed}
    held = tried | ({row["path"] for row in rows} - {row["path"] for row in rows if row["state"] == "skipped"})
    texts = [f"autopatch {framework}: {words}" for words in dict.fromkeys(row["version"] for row in rows) if words]
    if not applied and not failed:
        return [f"{line}; none of its {len({row['path'] for row in rows})} targets is in place" for line in texts]
    counted = f"{len(paths)} of the {len(held)} targets that this version has, in {len(processes)} processes"
    waiting = len(held - tried)
    rest = f"; {waiting} in modules that none has imported" if waiting else ""
    texts.append(f"autopatch {framework}: {counted}{rest}{_tell_calls(applied)}")
    for path, reason, detail in sorted(failed):
        why = f" {detail}" if reason == _REPLACED else f" ({detail})" if detail else ""
        texts.append(("  " if reason == _REPLACED else "  not reached: ") + f"{path}: {reason}{why}")
    return texts


def _tell_calls(applied: list[dict[str, Any]]) -> str:
    """How often those that are in place were called, of those of which that is known, and which never were."""
    calls: dict[str, int] = {}
    for row in applied:
        if row["calls"] is not None:
            calls[row["path"]] = calls.get(row["path"], 0) + row["calls"]
    never = [path.partition(":")[2] for path, count in calls.items() if not count]
    words = f"; in place and called {sum(calls.values())} times" if calls else ""
    return words + (f"; in place, never called: {listed(never, ', ', _NAMED)}" if never else "")
