"""A label for each process of a run, and for each track of a process, that no other one has."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any, Mapping, Sequence

from ..host import parts
from ..store.values import group_by
from .report.escape import escape_name

Row = Mapping[str, Any]


def of_processes(rows: Sequence[Row]) -> list[str]:
    """`rank 0`, `rank 0 actor`, `rank 0 dataloader 3`, `replica 2`, `process 3 (pid 4711)`: safe to show.

    Rank, role and part; a trainer needs no part, nor a worker of Ray that has a role. What others have too gets more,
    as little as will do: the part, the attempt of the job, the pid, the host, in the end a number.
    """
    return _choose_unlike([_list_forms(row) for row in rows])


def label_with_place(row: Row) -> str:
    """A process's label with its pid and host, for who has to find it."""
    placed = _list_forms(row)[-1]
    return str(row["label"]) if str(row["label"]).startswith(placed) else placed


def of_tracks(rows: Sequence[Row]) -> list[str]:
    """`MainThread`, `task on MainThread (track 3)`, `loader-1 and others` where threads shared it, `thread 99` where
    that has no name: no two tracks of a process are called the same.
    """
    labels = [""] * len(rows)
    for of_process in group_by(range(len(rows)), lambda at: rows[at]["process"]).values():
        forms = []
        for row in (rows[at] for at in of_process):
            name, thread = escape_name(row.get("name")).strip(), f"thread {row['thread']}"
            name += " and others" if name and row.get("is_shared") else ""
            short = f"{'task on ' if row['is_task'] else ''}{name or thread}"
            forms.append((short, f"{short} ({thread})" if name else short, f"{short} (track {row['track']})"))
        for at, label in zip(of_process, _choose_unlike(forms)):
            labels[at] = label
    return labels


def order_of_tracks(rows: Sequence[Row]) -> list[int]:
    """Places of rows, in the order of `tracks()`, as they are to be shown: in each process the main thread first, then
    the others as they began to record, the tasks of each after it.
    """
    first: dict[tuple[int, int], int] = {}
    for row in rows:
        first.setdefault((row["process"], row["thread"]), row["track"])

    def place(at: int) -> tuple[int, bool, int, bool, int]:
        row = rows[at]
        begun = first[row["process"], row["thread"]]
        return row["process"], row["thread"] != row["pid"], begun, row["is_task"], row["track"]

    return sorted(range(len(rows)), key=place)


def _list_forms(row: Row) -> tuple[str, ...]:
    """What a process may be called, from short to long."""
    pid, where = f"pid {row['pid']}", f"pid {row['pid']} on {escape_name(row['host'])}"
    short, whole, attempt = _join_words(row, is_whole=False), _join_words(row, is_whole=True), row.get("attempt")
    if row["rank"] is None and (not short or (short == row["part"] and row["under"] in (parts.PROCESS, parts.FORK))):
        name = parts.name_process(short, row["pid"])
        return name, name, name, name, f"{name[:-1]} on {escape_name(row['host'])})"
    longer = whole + ("" if attempt is None else f" (attempt {attempt})")
    return short, whole, longer, f"{short} ({pid})", f"{short} ({where})"


def _join_words(row: Row, is_whole: bool) -> str:
    rank = "" if row["rank"] is None else f"rank {row['rank']}"
    role, part = escape_name(row["role"]).strip(), escape_name(row["part"]).strip()
    is_of_a_role = row["under"] == parts.RAY and role and not part.startswith("replica ")
    says_little = part == parts.TRAINER or is_of_a_role
    return " ".join(filter(None, (rank, role, "" if part == role or (says_little and not is_whole) else part)))


def _choose_unlike(forms: Sequence[tuple[str, ...]]) -> list[str]:
    """Of each the shortest form that no other one has got; where even the longest is another's, with a number."""
    labels = [own[0] for own in forms]
    for level in range(1, len(forms[0]) if forms else 0):
        counts = Counter(labels)
        labels = [own[level] if counts[label] > 1 else label for own, label in zip(forms, labels)]
    counts, numbers = Counter(labels), {label: count(1) for label in labels}
    for at, label in enumerate(labels):
        if counts[label] > 1:
            labels[at] = next(text for number in numbers[label] if (text := f"{label} #{number}") not in counts)
            counts[labels[at]] += 1
    return labels
