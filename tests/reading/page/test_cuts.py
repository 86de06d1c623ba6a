"""What the page leaves out it counts, and what it shows of many is the newest, or the worst."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("polars")

from builders.judged_runs import verdict
from builders.run_files import RUN_ID, WALL_OFFSET_NS, BankFiles, ProcessFiles, new_run

from mstxkit.reading.page import sections, writing
from mstxkit.reading.report import lost_time
from mstxkit.reading.report import summary as summaries
from mstxkit.reading.run import open_run
from mstxkit.reading.tables.processes import DROPS

ROLES = ("actor", "critic", "ref", "reward", "rollout", "teacher")


def of_six_roles(path: Path) -> Path:
    run = new_run(path)
    for place, role in enumerate(ROLES):
        for rank in (2 * place, 2 * place + 1):
            bank = BankFiles()
            for step in range(4):
                bank.range("w", step * 10**9, step * 10**9 + 10**8, stage=f"work_{role}", own=True, step=step)
            ProcessFiles(run, 100 + rank, rank=rank, role=role).seal(bank)
    return run


def profiled(run: Path, request: int, rank: int) -> None:
    """A profile was recorded for a request, one of many."""
    folder = run / "profiles" / "work" / f"step{request}" / f"rank{rank}" / f"{1000 + rank}-{request}"
    folder.mkdir(parents=True, mode=0o700)
    session: dict[str, Any] = {
        "format": 1, "run": RUN_ID, "rank": rank, "stage": "work", "step": request, "request": f"{request:016x}",
        "state": "recorded", "output": "", "backend": "torch", "steps": [request],
        "start_ns": WALL_OFFSET_NS + request, "end_ns": WALL_OFFSET_NS + request + 1,
    }  # fmt: skip
    (folder / "session.json").write_text(json.dumps(session))


def page_of(path: Path, **changed: Any) -> str:
    run = open_run(path)
    return unescape(writing.make_page(run, {**summaries.summarise_run(run), **changed}, path.parent))


def rows_of(page: str, caption: str) -> list[list[str]]:
    """The cells of the table with that caption, row by row, without their HTML."""
    body = page[page.index(f"<caption>{caption}") :]
    rows = re.findall(r"<tr>(.*?)</tr>", body[: body.index("</table>")].partition("<tbody>")[2])
    return [[re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]


def test_roles_that_cannot_be_chosen_are_named(tmp_path: Path) -> None:
    page = page_of(of_six_roles(tmp_path / "run"))

    options = re.findall(r"<option[^>]*><bdi>(\w+)</bdi></option>", page)
    told = re.search(r"and 2 more roles, not shown: (.*?)</p>", page)
    assert len(options) == 4
    assert told is not None
    assert {*options, *re.sub("<[^>]+>", "", told[1]).split(", ")} == {*ROLES}


def test_the_newest_requests_come_first_and_older_ones_are_counted(tmp_path: Path) -> None:
    path = of_six_roles(tmp_path / "run")
    for request in range(60):
        for rank in range(2):
            profiled(path, request, rank)

    page = page_of(path)
    rows = rows_of(page, "Requests for profiles")

    assert [row[3] for row in rows[:4]] == ["59 to 59", "59 to 59", "58 to 58", "58 to 58"]
    assert [row[1] for row in rows[:4]] == ["0", "1", "0", "1"]
    assert len(rows) == 96
    assert "and 24 older ones" in page


def test_the_newest_incidents_come_first_and_earlier_ones_are_counted(tmp_path: Path) -> None:
    incidents = [
        {"kind": "killed", "who": f"rank {at}", "range": None, "stage": None, "since_ns": None, "time_ns": at,
         "waits_for": "", "page": f"incidents/{at}", "over_ns": None, "signal": None, "oom_kills": 0, "step": None}
        for at in range(30)
    ]  # fmt: skip

    page = page_of(of_six_roles(tmp_path / "run"), incidents=incidents)
    rows = rows_of(page, "Hangs, deaths and the like")

    assert (rows[0][0], rows[-1][0]) == ("Rank 29 was killed", "Rank 6 was killed")
    assert "and 6 earlier ones" in page


def test_what_was_lost_and_not_read_is_counted_where_it_is_cut(tmp_path: Path) -> None:
    run = open_run(of_six_roles(tmp_path / "run"))
    summary = summaries.summarise_run(run)
    process = {"label": "rank 0", "host": "h", **dict.fromkeys(DROPS, 1)}
    damaged = {"path": "sealed/x", "reason": "torn", "offset": 0}
    many = {"losses": [process] * 26, "damage": [damaged] * 27}

    said = sections.show_health({**summary, **many}, {})

    assert re.findall(r"and (\d+) more", said) == ["2", "3"]
    assert "more" not in sections.show_health({**summary, "losses": [process] * 24}, {})


def test_matters_and_stragglers_that_are_not_listed_are_counted(tmp_path: Path) -> None:
    matters = [lost_time.of_verdict(verdict(id=f"v{at}", rank=at)._asdict())._asdict() for at in range(9)]
    straggler = {
        "role": "actor", "stage": "work", "where": "in", "rank": 1, "first_step": 0, "last_step": 3,
        "effect_ratio": 0.2, "more_ns": 10**6, "confidence": 0.9, "who": "rank 1",
    }  # fmt: skip

    page = page_of(of_six_roles(tmp_path / "run"), matters=matters)
    table = sections.show_stragglers([straggler] * 50)

    assert "<li>and 3 more: " in page
    assert len(rows_of(table, "Stragglers, by cost")) == 24
    assert "and 26 more" in table


def test_what_if_and_lateness_that_are_not_listed_or_drawn_are_counted(tmp_path: Path) -> None:
    change = {
        "kind": "straggler", "role": "actor", "stage": "work_actor", "where": "in", "group": None, "step_ns": 100,
        "without_ns": 50, "saved_ratio": 0.5,
        "error_ratio": None, "who": "rank 1",
    }  # fmt: skip
    late = {"role": "actor", "stage": "work_actor", "source": "stage_entry", "late_ns": 20.0, "error_ns": 7, "steps": 4}

    page = page_of(
        of_six_roles(tmp_path / "run"), what_if=[{**change, "rank": rank} for rank in range(30)],
        lateness=[{**late, "rank": rank} for rank in range(26)],
    )  # fmt: skip
    sections_of = dict(re.findall(r'<section id="(\w+)" [^>]*>(.*?)</section>', page, re.DOTALL))

    assert len(rows_of(page, "What each would save")) == len(rows_of(page, "Lateness, mean of the steps")) == 24
    assert "The first 12 of 30." in sections_of["saves"] and "and 6 more" in sections_of["saves"]
    assert "and 2 more" in sections_of["who"]


def test_who_is_last_and_samples_that_are_not_listed_are_counted(tmp_path: Path) -> None:
    tail = {
        "role": "actor", "stage": "work_actor", "generates": True, "steps": 90, "middle_ns": 1.0, "p90_ns": 2.0,
        "last_ns": 3.0, "tail_ns": 2.0, "tail_ratio": 0.6, "idle_ns": 9.0, "longer_ratio": None,
        "often": [[rank, 40 - rank] for rank in range(30)],
    }  # fmt: skip
    sample = {"step": 1, "rank": 0, "duration_ns": 9, "alone_ns": 4, "tokens": None}
    samples = {"count": 99, "alone": 40, "longest_alone": [sample] * 24}

    run = open_run(of_six_roles(tmp_path / "run"))
    summary = {**summaries.summarise_run(run), "samples": samples}
    drawn = sections.show_tail(
        summary, {"roles": [{"means": {"tails": [tail]}, "tails": {"stage": "w"}, "members": 2}]}
    )

    assert len(rows_of(drawn, "Who is last, of 90 steps")) == 24
    assert re.findall(r"and (\d+) more", drawn) == ["6", "32"]
    assert len(rows_of(drawn, "Samples that held up a step most")) == 8
