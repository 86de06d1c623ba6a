"""The lines on autopatch that `mstxkit status RUN` ends with."""

from __future__ import annotations

from typing import Any

from mstxkit.reading.report.gaps import patch_lines


def row(path: str, state: str, pid: int = 1, calls: int | None = None, **more: str) -> dict[str, Any]:
    fields = {"framework": "verl", "path": path, "state": state, "pid": pid, "host": "h", "calls": calls}
    return {**fields, "reason": "", "detail": "", "version": "", **more}


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


def test_calls_are_added_up_over_processes_and_what_no_process_has_called_is_named() -> None:
    rows = [row("a:f", "applied", calls=2), row("a:f", "applied", pid=2, calls=0), row("a:C.g", "applied", calls=0)]

    (line,) = patch_lines([*rows, row("a:h", "applied")])

    assert line.endswith("in 2 processes; in place and called 2 times; in place, never called: C.g")


def test_what_was_replaced_since_is_told_with_by_whom() -> None:
    rows = [row("a:f", "failed", reason="replaced since", detail="by step of mindspeed.core")]

    assert patch_lines(rows)[1:] == ["  a:f: replaced since by step of mindspeed.core"]


def test_a_version_that_is_not_known_is_told_also_where_nothing_is_in_place() -> None:
    newer = "9.9.9 is newer than autopatch knows (0.6.1 to 0.9.1)"
    nothing = patch_lines([row("a:f", "skipped", version=newer), row("a:g", "waiting", version=newer)])
    some = patch_lines([row("a:f", "applied", version=newer)])

    assert nothing == [f"autopatch verl: {newer}; none of its 2 targets is in place"]
    assert some[0] == f"autopatch verl: {newer}"
    assert len(some) == 2


def test_nothing_that_a_record_holds_drives_a_terminal() -> None:
    rows = [row("a:f", "failed", reason="replaced since", detail="by \x1b[31mred of [bold]m")]

    assert patch_lines(rows)[1] == "  a:f: replaced since by \\x1b[31mred of [bold]m"
