"""`Run.escalations()`: a row for each request, stage and rank, whatever lies in the folders it is read from."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from builders import soak
from builders.escalated_run import NS, left, run_of, say, session
from builders.run_files import RUN_ID, WALL_OFFSET_NS, ProcessFiles, anchor

pl = pytest.importorskip("polars")
pytest.importorskip("numpy")

from mstxkit.escalation import asking  # noqa: E402
from mstxkit.reading import frames  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.reading.tables import escalations  # noqa: E402
from mstxkit.store.report import Report  # noqa: E402

COLUMNS = [
    "request", "stage", "rank", "state", "first_step", "last_step", "start_ns", "end_ns", "preset", "folder", "reason",
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_of(tmp_path / "run")


def rows(run: Path) -> list[dict[str, Any]]:
    return open_run(run).escalations().to_dicts()


def damaged(run: Path) -> list[str]:
    opened = open_run(run)
    opened.escalations()
    return [os.path.relpath(one.path, run) for one in opened.damage]


def test_the_columns_are_those_of_the_contract(run: Path) -> None:
    left(run)
    table = open_run(run).escalations()

    assert table.columns == COLUMNS
    assert table.schema == pl.Schema(frames.ESCALATION_SCHEMA)


def test_a_run_that_was_never_asked_has_no_rows_and_no_damage(run: Path, tmp_path: Path) -> None:
    assert rows(run) == []
    assert damaged(run) == []


def test_a_depth_of_one_s_own_is_called_as_its_sessions_call_it(run: Path) -> None:
    request = left(run, preset="full", options={"level": 2})
    before = rows(run)[0]["preset"]
    session(run, request.id, preset="full+level=level2")

    assert (before, rows(run)[0]["preset"]) == ("full", "full+level=level2")


def test_a_recorded_request_has_its_real_steps_times_and_folder(run: Path) -> None:
    request = left(run, steps=2, reason="why is it slow?")
    say(run, 1, Report(request.id, 1, "done", first_step=7, last_step=8, recorded=2, recorded_steps=(7, 8)))
    folders = [session(run, request.id, step=step, start_ns=WALL_OFFSET_NS + step * 10 * NS) for step in (7, 8)]

    row = rows(run)[0]

    assert (row["state"], row["first_step"], row["last_step"], row["preset"]) == ("done", 7, 8, "full")
    assert (row["start_ns"], row["end_ns"]) == (WALL_OFFSET_NS + 70 * NS, WALL_OFFSET_NS + 82 * NS)
    assert row["folder"] == "profiles/actor_update"
    assert all(str(folder).startswith(str(run / row["folder"])) for folder in folders)


def test_one_profile_is_named_exactly(run: Path) -> None:
    request = left(run)
    folder = session(run, request.id)

    assert rows(run)[0]["folder"] == str(folder.relative_to(run))


def test_a_row_for_each_stage_and_rank(run: Path) -> None:
    request = left(run, stage=["actor_generate", "actor_update"], ranks=[1, 3])
    say(run, 3, Report(request.id, 3, "armed", first_step=20, last_step=20))

    found = rows(run)

    assert [(row["stage"], row["rank"]) for row in found] == [
        ("actor_generate", 1), ("actor_generate", 3), ("actor_update", 1), ("actor_update", 3)
    ]  # fmt: skip
    assert [row["first_step"] for row in found] == [None, 20, None, 20]


def test_all_are_the_ranks_of_the_run_and_suspects_those_of_the_message(run: Path) -> None:
    left(run, ranks="all", created_ns=1, expires_ns=2)
    left(run, ranks="suspect+peer", suspects=(0, 2), created_ns=3, expires_ns=4)

    assert [row["rank"] for row in rows(run)] == [0, 1, 2, 3, 0, 2]


def test_a_silent_rank_is_queued_and_when_its_time_is_over_expired(run: Path) -> None:
    left(run, created_ns=1, expires_ns=2)
    left(run, occasion="again")

    assert [(row["state"], row["reason"]) for row in rows(run)] == [
        ("expired", "it never answered"), ("queued", "no answer yet")
    ]  # fmt: skip


def test_a_session_that_is_being_stopped_is_still_running(run: Path) -> None:
    request = left(run)
    say(run, 1, Report(request.id, 1, "draining"))

    assert rows(run)[0]["state"] == "running"


def test_a_cancelled_request_says_why(run: Path) -> None:
    request = left(run)
    asking.cancel_request(run, request.id, "not needed")

    assert (rows(run)[0]["state"], rows(run)[0]["reason"]) == ("cancelled", "not needed")


def test_a_lost_rank_is_what_the_agreeing_rank_says(run: Path) -> None:
    request = left(run, ranks=[1, 2])
    lost = [Report(request.id, rank, "failed", reason="rank lost") for rank in (1, 2)]
    say(run, 0, *lost)
    say(run, 1, Report(request.id, 1, "armed"))
    say(run, 2, Report(request.id, 2, "done"))

    assert [row["state"] for row in rows(run)] == ["failed", "done"]


def test_a_process_that_was_killed_in_a_session_has_failed(run: Path) -> None:
    request = left(run)
    say(run, 1, Report(request.id, 1, "running"))
    ProcessFiles(run_with_folders(run), os.getpid(), rank=1).seal(ended="killed")

    assert rows(run)[0]["state"] == "failed"


def run_with_folders(run: Path) -> Path:
    for name in ("live", "sealed"):
        (run / name).mkdir(exist_ok=True)
    return run


def test_of_processes_with_one_rank_that_one_counts_which_runs_the_stage(run: Path) -> None:
    request = left(run)
    say(run, 1, Report(request.id, 1, "done"), role="actor")
    say(run, 1, Report(request.id, 1, "armed"), role="rollout", stages=("actor_generate",))

    assert [row["state"] for row in rows(run)] == ["done"]


def test_what_is_left_of_a_request_that_is_forgotten_has_a_row(run: Path) -> None:
    say(run, 1, Report("f" * 16, 1, "done"))
    session(run, "e" * 16, rank=2)

    found = {row["request"]: row for row in rows(run)}

    assert (found["f" * 16]["stage"], found["f" * 16]["state"]) == (None, "done")
    assert (found["e" * 16]["stage"], found["e" * 16]["state"], found["e" * 16]["preset"]) == (
        "actor_update", "done", "full",
    )  # fmt: skip


def test_a_request_of_which_only_a_profile_is_left_is_as_old_as_that(run: Path) -> None:
    """The newest come last: a forgotten one is none of these, whatever its id."""
    session(run, "f" * 16, start_ns=WALL_OFFSET_NS)
    session(run, "0" * 16, start_ns=WALL_OFFSET_NS + NS)
    say(run, 1, Report("e" * 16, 1, "done"))
    asked = left(run).id
    session(run, asked, start_ns=WALL_OFFSET_NS + 2 * NS)

    assert [row["request"] for row in rows(run)] == ["e" * 16, "f" * 16, "0" * 16, asked]


def test_light_capture_is_no_escalation(run: Path) -> None:
    session(run, "", stage="light")

    assert rows(run) == []


def test_times_are_on_the_run_s_clock_where_the_host_s_was_set(run: Path) -> None:
    """An hour was added to the host's clock between two anchors: the offset of the run is that of the first."""
    hour = 3600 * NS
    anchors = (anchor(0), anchor(1000 * NS), anchor(2000 * NS, offset_ns=WALL_OFFSET_NS + hour))
    ProcessFiles(run_with_folders(run), os.getpid(), rank=1, anchors=anchors).seal()
    session(run, left(run).id, start_ns=WALL_OFFSET_NS + hour + 2001 * NS)

    row = rows(run)[0]

    assert (row["start_ns"], row["end_ns"]) == (WALL_OFFSET_NS + 2001 * NS, WALL_OFFSET_NS + 2003 * NS)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b'{"format": 2}', b'{"format": 1, "run": "other"}', b"\xff\xfe", b"[" * 100_000,
        b'{"format": 1, "a": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["control/requests.json", "control/acks/rank1.json", "session"])
def test_a_file_that_cannot_be_read_is_damage_and_nothing_else(run: Path, place: str, content: bytes) -> None:
    request = left(run)
    folder = session(run, request.id)
    path = folder / "session.json" if place == "session" else run / place
    path.write_bytes(content)

    assert str(path.relative_to(run)) in damaged(run)
    assert isinstance(rows(run), list)


def test_damage_is_listed_once_however_often_the_table_is_asked_for(run: Path) -> None:
    (run / "control" / "acks" / "rank1.json").write_bytes(b"{")
    opened = open_run(run)
    for _ in range(3):
        opened.escalations()

    assert len(opened.damage) == 1


def test_links_fifos_and_strange_names_are_not_followed(run: Path, tmp_path: Path) -> None:
    elsewhere = session(run_of(tmp_path / "elsewhere"), left(run).id)
    os.makedirs(run / "profiles" / "actor_update")
    (run / "profiles" / "actor_update" / "step7").symlink_to(elsewhere.parents[1])
    place = run / "profiles" / "a" / "b" / "c" / "d"
    os.makedirs(place)
    os.mkfifo(place / "session.json")
    (run / "control" / "acks" / "rank1.json.bak").write_bytes(b"{")
    (run / "control" / "acks" / "rank-1.json").write_bytes(b"{")

    assert rows(run)[0]["folder"] is None
    assert damaged(run) == ["profiles/a/b/c/d/session.json"]


NASTY: tuple[Any, ...] = (
    None, True, -1, 1 << 62, 1 << 64, 10**30, 1.5, float("inf"), "", "x", "\ud800", "\x1b[31m", [], {}, [None], ["a"],
    [1 << 40], {"a": 1}, "all", [{}], "done", "running", RUN_ID,
)  # fmt: skip


def spoilt(value: Any, dice: random.Random) -> Any:
    """A copy with one or more of its values replaced."""
    if dice.random() < 0.15:
        return dice.choice(NASTY)
    if isinstance(value, dict):
        return {key: one if key in ("format", "run") else spoilt(one, dice) for key, one in value.items()}
    return [spoilt(one, dice) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", soak.rounds(range(600), [soak.seed() + number for number in range(15)]))
def test_whatever_values_files_hold_the_table_is_made(run: Path, seed: int) -> None:
    dice = random.Random(seed)
    request = left(run, ranks="all", stage=["actor_generate", "actor_update"])
    left(run, ranks="suspect+peer", suspects=(1, 2))
    asking.cancel_request(run, request.id)
    say(run, 1, Report(request.id, 1, "done", first_step=1, last_step=2, recorded_steps=(1, 2)))
    files = [session(run, request.id) / "session.json", run / "control/requests.json", run / "control/acks/rank1.json"]
    for path in files:
        path.write_text(json.dumps(spoilt(json.loads(path.read_text()), dice)))

    table = open_run(run).escalations()

    assert table.columns == COLUMNS
    assert set(table["state"]) <= {
        "queued", "armed", "running", "done", "cancelled", "expired", "refused", "failed"
    }  # fmt: skip


def test_a_run_of_a_million_ranks_and_a_thousand_requests_is_cut_with_a_word(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(escalations, "ROWS_AT_MOST", 100)
    say(run, 1, world_size=1 << 20)
    left(run, ranks="all")

    assert len(rows(run)) == 100
    assert damaged(run) == ["control"]
