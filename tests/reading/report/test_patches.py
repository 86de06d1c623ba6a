"""The lines on autopatch that `mstxkit status RUN` ends with."""

from __future__ import annotations

from typing import Any

from mstxkit.reading.report.text import patch_lines


def row(path: str, state: str, pid: int = 1, reason: str = "", detail: str = "") -> dict[str, Any]:
    return {
        "framework": "verl", "path": path, "state": state, "pid": pid, "host": "h", "reason": reason, "detail": detail,
    }  # fmt: skip


def test_a_target_counts_once_however_many_processes_it_is_applied_in() -> None:
    rows = [row("a:f", "applied"), row("a:f", "applied", pid=2), row("a:g", "waiting"), row("a:g", "waiting", pid=2)]

    assert patch_lines(rows) == [
        "autopatch verl: 1 of the 2 targets that this version has, in 2 processes; 1 in modules that none has imported"
    ]


def test_what_one_process_knows_to_be_absent_is_not_of_this_version() -> None:
    """In the other process its module is not imported: there it is waiting."""
    rows = [row("a:f", "applied"), row("a:g", "skipped", reason="absent in this version"), row("a:g", "waiting", pid=2)]

    assert patch_lines(rows) == ["autopatch verl: 1 of the 1 targets that this version has, in 1 processes"]


def test_what_failed_is_told_once_with_its_reason() -> None:
    failure = {"reason": "cannot be replaced", "detail": "it is implemented in C"}
    rows = [row("a:f", "failed", pid, **failure) for pid in (1, 2)]

    assert patch_lines(rows)[1:] == ["  not reached: a:f: cannot be replaced (it is implemented in C)"]


def test_a_framework_that_no_process_has_imported_has_no_line() -> None:
    assert patch_lines([row("a:f", "waiting"), row("a:g", "skipped")]) == []
