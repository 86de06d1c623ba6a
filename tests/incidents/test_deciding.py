"""Who is stuck and who merely waits for him, from reports alone."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mstxkit.incidents import deciding, page, summary
from mstxkit.incidents.deciding import Report
from mstxkit.store.whereabouts import Age, Whereabouts

HANG_S = 30.0
STACKS = {
    "collective": [["/x/site-packages/torch/distributed/distributed_c10d.py", 9, "all_reduce"], ["/app/t.py", 3, "f"]],
    "others": [["/x/lib/python3.11/queue.py", 180, "get"], ["/app/t.py", 4, "g"]],
    "own": [["/app/t.py", 5, "h"]],
    "lock": [["/x/lib/python3.11/threading.py", 7, "wait"], ["/app/t.py", 6, "i"]],
}


def report(rank: int, waits: str = "own", is_stuck: bool = True, **more: Any) -> Report:
    """Of a rank that is inside of `score` of `reward` since second 100."""
    inside = {"name": "score", "stage": "reward", "since_ns": 100 * 10**9, "is_stuck": is_stuck, "step": 3}
    thread = {"tid": rank + 1, "frames": STACKS[waits]}
    return {
        "process": f"p{rank:04d}", "rank": rank, "role": "actor", "world_size": 8, "pid": rank + 1, "host": "h",
        "state": "sleeping", "works": False, "quiet_s": 31.0, "inside": [inside], "waits": waits, "thread": thread,
        "stacks_by": "itself", **more,
    }  # fmt: skip


def entered(sequence: int, ranks: str = "0-7", group: int = 5) -> list[dict[str, Any]]:
    return [{"group": group, "name": "0", "ranks": ranks, "sequence": sequence, "operation": "all_reduce"}]


def blamed(reports: list[Report]) -> tuple[int | None, str]:
    cause = deciding.find_cause(reports, HANG_S)
    assert cause is not None
    return None if cause.report is None else cause.report["rank"], cause.how


@pytest.mark.parametrize(
    ("held", "how"),
    [
        ({"state": "stopped"}, "stopped"), ({"state": "disk"}, "disk"), ({"stacks_by": "signal"}, "native"),
        ({"stacks_by": "py-spy", "has_gil": True}, "native"),
        ({"waits_in": "futex_wait_queue"}, "lock"), ({}, "own"), ({"state": "gone", "gone_ns": 1}, "gone"),
    ],
)  # fmt: skip
def test_who_is_held_up_himself_is_blamed_and_not_those_that_wait_in_a_collective(
    held: dict[str, Any], how: str
) -> None:
    reports = [report(rank, "collective") for rank in range(8)]
    reports[3] = report(3, **held)

    assert blamed(reports) == (3, how)


@pytest.mark.parametrize("waits", ["others", "collective"])
@pytest.mark.parametrize("inside", [report(0, is_stuck=False)["inside"], []])
def test_who_is_stopped_is_blamed_although_he_came_into_his_range_after_those_that_wait_for_him(
    waits: str, inside: list[dict[str, Any]]
) -> None:
    """They are stuck a moment earlier, and nobody who is stopped goes on."""
    assert blamed([report(0, state="stopped", inside=inside), report(1, waits)]) == (0, "stopped")
    assert deciding.find_cause([report(0, state="stopped", inside=inside)], HANG_S) is None


def test_a_rank_that_waits_and_is_slow_to_answer_is_not_said_to_hold_the_gil() -> None:
    assert blamed([report(0, "collective", stacks_by="signal"), report(1)]) == (1, "own")


def mute(rank: int, quiet_s: float = 31.0) -> Report:
    """Of a rank that waits in the kernel, and has not answered what for."""
    inside = {**report(rank)["inside"][0], "quiet_s": quiet_s, "limit_s": 30.0}
    silent = {"thread": None, "waits": "", "stacks_by": "", "waits_in": "futex_wait_queue"}
    return {**report(rank), **silent, "inside": [inside]}


def test_a_rank_that_has_not_answered_is_not_blamed_before_one_that_has() -> None:
    assert blamed([mute(0), report(1, waits_in="futex_wait_queue")]) == (1, "lock")


def test_where_nobody_has_answered_nobody_is_blamed_before_they_were_asked_again() -> None:
    assert deciding.find_cause([mute(0), mute(1)], HANG_S) is None
    assert blamed([mute(0, 91.0), mute(1, 91.0)]) == (0, "lock")
    assert blamed([mute(0), report(1, "others")]) == (0, "lock")


def test_a_rank_that_would_answer_if_there_were_a_core_for_it_is_asked_again_before_it_is_blamed() -> None:
    waits = report(1, "others")

    assert deciding.find_cause([{**mute(0), "is_late": True}, waits], HANG_S) is None
    assert blamed([{**mute(0, 91.0), "is_late": True}, waits]) == (0, "lock")
    assert blamed([{**mute(0), "is_late": True, "works": True}, waits]) == (0, "lock")


def test_a_rank_in_a_collective_that_has_not_said_in_which_is_not_said_to_be_missing() -> None:
    silent = report(0, "collective", has_ring=False, entered=entered(3, "0-1"))
    away = {**report(1, has_ring=False, entered=entered(16, "0-1")), "inside": []}
    cause = deciding.find_cause([silent, away], HANG_S)

    assert cause is not None and cause.report is away
    assert cause.reason == "it is not in the collective that the others wait in"


def test_nobody_is_blamed_before_a_process_has_said_which_rank_it_is() -> None:
    waits = report(0, "collective", entered=entered(17, "0-1"))
    waits["inside"][0].update(quiet_s=31.0, limit_s=30.0)
    nobody = {**mute(1), "rank": None, "world_size": None, "role": "", "inside": []}

    assert deciding.find_cause([waits, nobody], HANG_S) is None
    assert deciding.find_cause([waits, {**nobody, "works": True}], HANG_S) is not None
    waits["inside"][0]["quiet_s"] = 91.0
    assert blamed([waits, nobody]) == (None, "collective")


def test_a_rank_that_a_busy_host_has_not_let_begin_its_range_goes_on() -> None:
    late = {**report(0, state="running"), "inside": []}

    assert deciding.find_cause([late, report(1, "others")], HANG_S) is None


def test_who_has_not_entered_the_collective_is_blamed_although_no_range_of_it_is_stuck() -> None:
    reports = [report(rank, "collective", entered=entered(17)) for rank in range(8)]
    reports[6] = {**report(6, entered=entered(16)), "inside": []}
    cause = deciding.find_cause(reports, HANG_S)

    assert cause is not None and cause.report is reports[6]
    assert cause.reason == "it has not entered all_reduce 17 of group 0: entered by 0-5,7, missing 6"


def test_of_two_that_are_held_up_in_different_places_the_page_names_both_and_neither_waits() -> None:
    elsewhere = {"name": "backward", "stage": "actor_update", "since_ns": 101 * 10**9, "is_stuck": True, "step": 3}
    reports = [report(0), report(1, inside=[elsewhere]), *(report(rank, "collective") for rank in range(2, 8))]
    made = summary.sum_up("20261124T191500.000", 131 * 10**9, "hang", reports, deciding.find_cause(reports, HANG_S))

    assert (made.rank, made.stage) == (0, "reward")
    assert made.waits_for == "ranks 2-7 actor wait for rank 0 actor in reward"
    assert made.reason.endswith("; stuck as well: rank 1 actor in backward (actor_update)")
    assert [(group["who"], group["stage"]) for group in made.details["groups"]] == [
        ("ranks 2-7 actor", "reward"), ("rank 1 actor", "actor_update"), ("rank 0 actor", "reward"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("later", "rank"),
    [
        ([report(1, "collective")], 0), ([report(1, "others"), report(2, "others")], 0),
        ([report(1, "lock"), report(2, "lock")], 0), ([report(1, "lock"), report(2, "collective")], 1),
        ([report(1, state="stopped"), report(2, "collective")], 1),
    ],
)  # fmt: skip
def test_while_a_hang_is_told_of_only_who_is_held_up_elsewhere_by_himself_is_another(
    later: list[Report], rank: int
) -> None:
    """Those at one place wait for it, also where no call says so."""
    cause = deciding.find_cause([report(0), *later], HANG_S, {"p0000": 131 * 10**9})

    assert cause is not None and cause.report is not None
    assert cause.report["rank"] == rank


def test_what_holds_a_process_up_since_its_last_hang_was_told_of_is_another_one() -> None:
    begun_later = report(0)
    accused = [deciding.is_accused(begun_later, {"p0000": at_s * 10**9}) for at_s in (99, 101)]

    assert accused == [False, True]


def test_nobody_is_blamed_while_the_one_that_all_wait_for_works() -> None:
    reports = [report(rank, "collective", entered=entered(17)) for rank in range(8)]
    reports[6] = report(6, is_stuck=False, entered=entered(16))

    assert deciding.find_cause(reports, HANG_S) is None
    assert deciding.find_cause([*reports[:6], {**reports[6], "inside": [], "works": True}], HANG_S) is None


def test_nobody_is_blamed_while_somebody_is_debugged() -> None:
    reports = [report(0, "collective"), report(1)]

    assert deciding.find_cause([reports[0], {**reports[1], "tracer": 7}], HANG_S) is None
    assert deciding.find_cause([reports[0], {**reports[1], "is_debugged": True}], HANG_S) is None


def test_a_driver_that_waits_for_workers_that_go_on_is_no_hang() -> None:
    driver = {**report(0, "others"), "rank": None, "role": ""}
    worker = {**report(1, is_stuck=False), "quiet_s": 2.0}

    assert deciding.find_cause([driver, worker], HANG_S) is None


def test_one_of_the_first_waits_for_somebody_who_is_not_recorded_is_no_hang_before_its_patience_is_over() -> None:
    patient, over = ({"quiet_s": 31.0, "patience_s": patience_s} for patience_s in (300.0, 31.0 - 1e-3))
    waits = report(0, "others")
    waits["inside"][0].update(patient)

    assert deciding.find_cause([waits], HANG_S) is None
    assert deciding.find_cause([waits, report(1, "others"), report(2, "collective")], HANG_S) is None
    assert blamed([waits, report(1)]) == (1, "own")
    waits["inside"][0].update(over)
    assert blamed([waits]) == (0, "others")


def test_a_driver_that_waits_for_a_worker_that_is_stuck_is_not_the_cause() -> None:
    assert blamed([{**report(0, "others"), "rank": None, "role": ""}, report(1)]) == (1, "own")


def test_where_all_are_in_the_same_collective_nobody_alone_is_blamed() -> None:
    assert blamed([report(rank, "collective", entered=entered(17)) for rank in range(8)]) == (None, "collective")


def test_members_that_have_not_reported_are_missing_where_all_others_are_at_the_same_collective() -> None:
    reports = [report(rank, "collective", entered=entered(17)) for rank in range(7)]
    cause = deciding.find_cause(reports, HANG_S)

    assert cause is not None and cause.report is None
    assert cause.reason == "all_reduce 17 of group 0: entered by 0-6, missing 7, and nothing is known of these"


def test_the_one_that_is_in_another_collective_than_the_others_is_blamed() -> None:
    reports = [report(rank, "collective") for rank in range(8)]
    frames = [["/x/site-packages/torch/distributed/distributed_c10d.py", 9, "broadcast"], ["/app/t.py", 3, "f"]]
    reports[2] = report(2, "collective", thread={"frames": frames})

    assert blamed(reports) == (2, "collective")


def test_a_rank_that_ended_in_order_is_blamed_only_by_those_that_wait_for_it() -> None:
    left = {**report(1), "state": "left", "gone_ns": 5, "inside": []}

    assert blamed([report(0, "collective"), left]) == (1, "left")
    assert blamed([report(0), left]) == (0, "own")


def test_of_several_groups_the_collective_that_was_entered_first_is_the_missing_one() -> None:
    late = {"group": 9, "name": "tp", "ranks": "0-1", "sequence": 4, "operation": "broadcast", "entered_ns": 50}
    first = {**entered(17, "0-1")[0], "entered_ns": 10}
    reports = [report(0, entered=[first, late]), report(1, entered=[{**first, "sequence": 16}])]
    missing = deciding.first_missing(reports)

    assert missing is not None
    assert (missing.group, missing.sequence, missing.entered, missing.missing) == (5, 17, (0,), (1,))


def test_a_page_of_1024_ranks_names_the_one_that_is_stuck_and_fits_a_screen() -> None:
    reports = [report(rank, "collective", entered=entered(17, "0-1023")) for rank in range(1024)]
    reports[517] = report(517, entered=entered(16, "0-1023"))
    made = summary.sum_up("20261124T191500.000", 131 * 10**9, "hang", reports, deciding.find_cause(reports, HANG_S))
    text = page.write_page(made)

    assert (made.rank, made.stage, made.range, made.reports) == (517, "reward", "score", 1024)
    assert text.count("has not entered all_reduce 17 of group 0") == 1
    assert "Missing:" not in text
    assert made.waits_for == "ranks 0-516,518-1023 actor wait for rank 517 actor in reward"
    assert "1023 x ranks 0-516,518-1023 actor: in reward / score, for 31 s; collective" in text
    assert len(text.splitlines()) < 40
    assert len(text) < 4000


class Told(dict):  # type: ignore[type-arg]
    """A report that counts how often it is compared with another one."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Told.compared += 1
        return super().__eq__(other)


@pytest.mark.parametrize("waits", ["collective", "others"])
def test_reports_of_ten_thousand_ranks_are_gone_through_and_not_compared_one_with_another(waits: str) -> None:
    """Else their decision takes longer than others wait for it: each takes it over, and nobody comes to it."""
    reports = [Told(report(rank, waits)) for rank in range(64)]
    reports[40] = Told(report(40))
    Told.compared = 0

    assert blamed(list(reports)) == (40, "own")
    assert deciding.find_cause([Told(report(rank, "others")) for rank in range(64)], HANG_S) is not None
    assert not Told.compared


def of_hosts(rank: int, waits: str = "collective", **more: Any) -> Report:
    """Of one of 128 ranks, eight a host."""
    return report(rank, waits, host=f"node{rank // 8}", world_size=128, **more)


DEAD, LIVING = range(24, 32), [of_hosts(rank) for rank in (*range(24), *range(32, 128))]


def test_a_page_on_ranks_that_died_with_their_host_says_so_and_that_they_wait_for_nobody() -> None:
    dead = [of_hosts(rank, "own", state="gone", gone_ns=5, thread=None) for rank in DEAD]
    reports = [*dead, *LIVING]
    hang = summary.sum_up("20261124T191500.000", 131 * 10**9, "hang", reports, deciding.find_cause(reports, HANG_S))
    cause = summary.of_process("killed", "p0026", reports)
    killed = summary.sum_up("20261124T191500.000", 131 * 10**9, "killed", reports, cause)

    assert hang.waits_for == "ranks 0-23,32-127 actor wait for rank 24 actor in reward"
    assert "\nGone too: all of host node3: ranks 25-31 actor\n" in page.write_page(hang)
    assert killed.waits_for == "ranks 0-23,32-127 actor wait for rank 26 actor in reward"
    assert "\nGone too: all of host node3: ranks 24-25,27-31 actor\n" in page.write_page(killed)


def test_of_ranks_that_were_killed_and_have_begun_anew_nobody_is_gone() -> None:
    reports = [{**report(0, state="gone", gone_ns=5), "process": "before"}, report(0), report(1, "collective")]
    made = summary.sum_up("20261124T191500.000", 131 * 10**9, "hang", reports, deciding.find_cause(reports, HANG_S))

    assert "Gone too" not in page.write_page(made)


def test_where_a_host_does_not_report_the_page_names_it_and_not_the_network() -> None:
    where = Whereabouts("node3", 9, 24, "actor", "", 3, "reward", 1.0, 0, Age(45.0, False))
    silent = [where._replace(rank=rank) for rank in DEAD]
    made = summary.sum_up(
        "20261124T191500.000", 131 * 10**9, "hang", LIVING, deciding.find_cause(LIVING, HANG_S), silent
    )

    assert made.reason == "all of them are in the same collective, and nothing is known of 8 other ranks"
    assert "\nSilent:   host node3, last ~45 s ago: ranks 24-31 actor\n" in page.write_page(made)


def test_who_is_gone_is_in_no_group_with_who_lives() -> None:
    reports = [report(0), report(1, state="gone", gone_ns=5)]
    made = summary.sum_up("20261124T191500.000", 131 * 10**9, "hang", reports, deciding.find_cause(reports, HANG_S))

    assert [group["who"] for group in made.details["groups"]] == ["rank 0 actor", "rank 1 actor"]


def test_a_page_of_ranks_that_wait_in_many_groups_says_of_each_where_it_is_and_stays_one_page() -> None:
    calls = [["/x/site-packages/nn/modules/module.py", n, f"call{n}"] for n in range(20)] + [
        ["/app/train.py", 8, "fit"]
    ]
    places = ["all_gather", "recv", "send", "reduce_scatter", *(f"elsewhere{n}" for n in range(20))]

    def waits(rank: int) -> Report:
        place = places[rank // 8 % 4] if rank < 1000 else places[4 + rank % 20]
        frames = [["/x/site-packages/torch/distributed/distributed_c10d.py", 9, place], *calls]
        return report(rank, "collective", thread={"frames": frames}, entered=entered(17, "0-1023"))

    reports = [waits(rank) for rank in range(1024)]
    reports[517] = report(517, entered=entered(16, "0-1023"))
    made = summary.sum_up("20261124T191500.000", 131 * 10**9, "hang", reports, deciding.find_cause(reports, HANG_S))
    lines = page.write_page(made).splitlines()

    assert len(lines) < 80
    assert sum("in reward / score, for 31 s; collective, sleeping" in line for line in lines) == 8
    assert any(re.match(r"\d+ x ranks 8-15,40-47,72-79,.*,\.\.\. actor: in reward / score", line) for line in lines)
    assert lines.count("    by fit at /app/train.py:8") == 8
    assert max(map(len, lines)) < 200
    assert len(made.details["groups"]) == 25


@pytest.mark.parametrize(
    "hostile",
    [
        {"rank": 1 << 80, "inside": [{"name": "\x1b[2J", "since_ns": 1e400, "is_stuck": True}]},
        {"thread": {"frames": [["\x00", {}, []]] * 500}, "inside": [{"is_stuck": True}], "role": ["x"]},
        {"entered": [{"ranks": "0-999999999", "sequence": -1}, 7, {"group": "x", "ranks": "1,1,1"}]},
        {"exceptions": "x", "signal": "SIGKILL", "gone_ns": -5, "state": 7, "quiet_s": "soon", "waits": None},
    ],
)
def test_hostile_reports_make_a_page_without_control_characters(hostile: dict[str, Any]) -> None:
    reports = [report(0, "collective"), {**report(1), **hostile}]
    made = summary.sum_up("20261124T191500.000", 131 * 10**9, "hang", reports, deciding.find_cause(reports, HANG_S))

    assert "\x1b" not in page.write_page(made)
    assert made.as_json("id")


def test_of_those_that_wait_for_others_one_with_a_rank_is_blamed_and_who_works_unmarked_is_said() -> None:
    driver = {**report(9, "others"), "process": "p0", "rank": None, "role": "driver", "world_size": None}
    unmarked = report(2, inside=[])
    cause = deciding.find_cause([driver, report(1, "others"), unmarked], HANG_S)

    assert cause is not None and cause.report is not None
    assert (cause.report["rank"], cause.how) == (1, "others")
    assert cause.reason.endswith("in its own code, inside of no range: rank 2 actor")
    assert cause.waiting == (driver,)


def test_who_waits_for_a_child_of_its_own_that_hangs_in_no_range_is_blamed_and_the_child_is_shown() -> None:
    """A data loader, as a rule: all others wait for the rank that waits for it."""
    loader = report(1, inside=[], part="dataloader 0", under="dataloader")
    reports = [report(0, "others"), report(1, "others"), loader]
    cause = deciding.find_cause(reports, HANG_S)

    assert cause is not None and cause.report is reports[1]
    assert cause.reason.endswith("in its own code, inside of no range: rank 1 actor dataloader 0")
    shown = summary.sum_up("20261124T101500.000", 1, "hang", reports, cause).details["groups"]
    assert "rank 1 actor dataloader 0" in [group["who"] for group in shown]
