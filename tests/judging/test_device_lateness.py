"""By device ranges who stays least came last, by as much as the longest exceeds its own; clocks do not matter."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from builders.profiler_database import write_database

from mstxkit.judging import device_lateness, meeting
from mstxkit.judging.device_lateness import DeviceCollective
from mstxkit.judging.evidence import DEVICE

MS = 1_000_000
_TASK = """
create table TASK(startNs integer, endNs integer, deviceId integer, connectionId integer, globalTaskId integer,
    globalPid integer, taskType integer, contextId integer, streamId integer, taskId integer, modelId integer)
"""
_OPERATIONS = """
create table COMMUNICATION_OP(opName integer, startNs integer, endNs integer, connectionId integer, groupName integer,
    opId integer primary key, relay integer, retry integer, dataType integer, algType integer, count integer,
    opType integer, deviceId integer, rankSize integer)
"""


def ops(*durations_ms: int, group: str = "dp", off_ms: int = 0) -> list[DeviceCollective]:
    """One a second, each over at the same moment in all members but for their clocks."""
    return [
        DeviceCollective(group, (1000 * at - took + off_ms) * MS, (1000 * at + off_ms) * MS)
        for at, took in enumerate(durations_ms, 1)
    ]


def test_who_stays_least_came_last_however_clocks_are_off() -> None:
    entered = device_lateness.join_collectives({0: ops(25, 25), 1: ops(5, 5, off_ms=400), 2: ops(24, 26, off_ms=-90)})

    assert entered is not None
    late = meeting.late_in(entered, np.zeros(3))
    by_member = {m: late.late_s[entered.member[late.at] == m].max() for m in range(3)}
    assert by_member == pytest.approx({0: 0.001, 1: 0.021, 2: 0.001})
    assert (entered.source, set(entered.stage.tolist())) == (DEVICE, {0})


def test_groups_are_kept_apart_and_named_with_their_ranks() -> None:
    entered = device_lateness.join_collectives(
        {3: ops(9) + ops(3, group="tp"), 5: ops(4) + ops(3, group="tp"), 8: ops(8)}
    )

    assert entered is not None
    assert sorted(zip(entered.group.tolist(), entered.member.tolist())) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert entered.groups == {0: (3, 5, 8), 1: (3, 5)}


def test_a_group_of_which_members_recorded_different_windows_is_left_out() -> None:
    assert device_lateness.join_collectives({0: ops(9, 9), 1: ops(4)}) is None
    assert device_lateness.join_collectives({0: ops(9), 1: []}) is None
    assert device_lateness.join_collectives({}) is None


def database(folder: Path) -> tuple[Path, sqlite3.Connection]:
    file = write_database(folder, 3, 7, [("forward", 5 * MS)])
    return file, sqlite3.connect(file)


def test_operations_are_read_from_a_parsed_database(tmp_path: Path) -> None:
    file, base = database(tmp_path)
    with base:
        base.execute(_OPERATIONS)
        base.executemany("insert into STRING_IDS values (?, ?)", [(900, "group_7"), (901, "hcom_allGather__576_0_1")])
        for number, (start, end) in enumerate([(50, 70), (10, 40)]):
            row = (901, start * MS, end * MS, 0, 900, number, 0, 0, 0, 0, 1, 0, 3, 8)
            base.execute(f"insert into COMMUNICATION_OP values ({','.join('?' * len(row))})", row)
    base.close()

    assert device_lateness.read_collectives(file) == [
        DeviceCollective("group_7", 10 * MS, 40 * MS), DeviceCollective("group_7", 50 * MS, 70 * MS)
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["hcom_broadcast__576_0_1", "hcom_send__576_0_1", "hcom_batchSendRecv__576_0_1"])
def test_what_somebody_may_leave_before_the_others_come_says_nothing_of_who_is_late(tmp_path: Path, name: str) -> None:
    """The root of a broadcast is done in no time, and was not late for that."""
    file, base = database(tmp_path)
    with base:
        base.execute(_OPERATIONS)
        names = [(900, "group_7"), (901, name), (902, "hcom_allReduce_")]
        base.executemany("insert into STRING_IDS values (?, ?)", names)
        for number, operation in enumerate((901, 902)):
            row = (operation, 10 * MS, 30 * MS, 0, 900, number, 0, 0, 0, 0, 1, 0, 3, 8)
            base.execute(f"insert into COMMUNICATION_OP values ({','.join('?' * len(row))})", row)
    base.close()

    assert device_lateness.read_collectives(file) == [DeviceCollective("group_7", 10 * MS, 30 * MS)]


def test_two_ranks_that_both_wait_inside_are_not_told_apart_by_a_little_more_of_it() -> None:
    """As in real profiles of levels 0 to 2: 75 and 79 ms, of which 74.8 and 78.9 wait for their own hosts."""
    entered = device_lateness.join_collectives({0: ops(75, 2, 10), 1: ops(79, 2, 10)})
    assert entered is not None
    late = meeting.late_in(entered, np.zeros(2))

    assert all(late_s < device_lateness.bounds_s(entered)[at] for at, late_s in zip(late.at, late.late_s))


def test_a_light_step_has_them_as_ranges_of_the_domain_communication(tmp_path: Path) -> None:
    file, base = database(tmp_path)
    message = json.dumps({"streamId": "4", "count": "8", "groupName": "group_7", "opName": "HcclAllreduce"})
    with base:
        base.execute(_TASK)
        base.executemany("insert into STRING_IDS values (?, ?)", [(901, "communication"), (902, message), (903, "{")])
        for number, text in ((1, 902), (2, 903)):
            event = (0, 1, 2, 1, 1, text, 7, 7, 901, 4000000900 + number)
            base.execute("insert into MSTX_EVENTS values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", event)
            task = (10 * MS, 30 * MS, 3, 4000000900 + number, 1, 1, 1, 1, 4, 1, 1)
            base.execute("insert into TASK values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", task)
    base.close()

    assert device_lateness.read_collectives(file) == [DeviceCollective("group_7", 10 * MS, 30 * MS)]


@pytest.mark.parametrize("content", [b"", b"no database at all", b"SQLite format 3\0" + bytes(200)])
def test_what_is_no_such_database_tells_of_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(content)

    assert device_lateness.read_collectives(tmp_path / "a.db") == []
    assert device_lateness.read_collectives(tmp_path / "missing.db") == []
