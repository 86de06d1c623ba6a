"""Runs with real processes, the real torch_npu and real kills: what must hold of escalation whatever happens.

Fifty in `make soak`, six others each day in `make test`.

Each run is made from its seed by `escalated_lives.py`, and judged by what is left of it: what CANN was asked for and by
whom, `session.json` beside each profile, what the ranks said, how their processes ended and what they printed.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from builders import lives, soak

import mstxkit
from mstxkit.escalation import asking
from mstxkit.store import fate
from mstxkit.store.report import END_STATES
from mstxkit.testing import CannCall, CannRun, run_under_cann

pytestmark = [
    pytest.mark.npu,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu"),
]

SEEDS = soak.rounds(tuple(range(1, 51)), tuple(range(100 * soak.seed(), 100 * soak.seed() + 6)))
JOBS, SECONDS = 4, 2.0
FAR_NS = 1 << 62  # after every request has expired
PROGRAM = Path(__file__).resolve().parents[1] / "builders/escalated_lives.py"


class Story:
    """One run, as it is found afterwards."""

    def __init__(self, folder: Path, seed: int, calls: tuple[CannCall, ...]) -> None:
        self.seed, self.place = seed, folder / str(seed)
        self.run = self.place / "run"
        self.told: dict[str, Any] = json.loads((self.place / "result.json").read_text())
        self.processes: dict[int, dict[str, Any]] = {one["pid"]: one for one in self.told["processes"]}
        self.calls = [call for call in calls if call.pid in self.processes]
        found = sorted(self.run.glob("profiles/*/*/*/*/session.json"))
        self.sessions = [json.loads(path.read_text()) for path in found]

    def printed(self, process: dict[str, Any], what: str) -> str:
        file = self.place / f"rank{process['rank']}-{process['life']}.{what}"
        return file.read_text() if file.exists() else ""  # it was killed before it had made one

    def profiles(self, pid: int) -> list[CannCall]:
        """The starts and stops of a process that CANN obeyed, in order."""
        return [
            call
            for call in self.calls
            if call.pid == pid and call.call in ("aclprofStart", "aclprofStop") and call.code == 0
        ]

    def said(self) -> list[fate.Heard]:
        return fate.read_heard(asking.control_of(self.run))

    def __str__(self) -> str:
        return f"seed {self.seed}: see {self.place}"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CannRun]:
    """All runs, made at once: torch_npu is imported once."""
    folder = tmp_path_factory.mktemp("runs")
    command = [sys.executable, str(PROGRAM), str(folder), str(JOBS), str(SECONDS), *map(str, SEEDS)]
    run = run_under_cann(command, env=lives.environment(), timeout_s=800)
    assert run.returncode == 0, run.stderr[-5000:]
    return folder, run


@pytest.fixture(params=SEEDS)
def story(request: pytest.FixtureRequest, told: tuple[Path, CannRun]) -> Story:
    folder, run = told
    assert (folder / str(request.param) / "result.json").exists(), f"seed {request.param}: {run.stderr[-5000:]}"
    return Story(folder, request.param, run.calls)


def test_whatever_happens(story: Story) -> None:
    assert story.told["problems"] == [], story
    for process in story.processes.values():
        judge_end(story, process)
        judge_profiles(story, process)
        judge_sessions(story, process)
    judge_devices(story)
    judge_requests(story)
    judge_memories(story)


def judge_end(story: Story, process: dict[str, Any]) -> None:
    """Nobody's program was touched: it ends as it was told to, and nothing went wrong in it."""
    out, err = story.printed(process, "out"), story.printed(process, "err")
    signal = process.get("signal")
    expected = 0 if signal is None else 143 if process["killed_ns"] is None else -signal
    may_be_late = signal == 15  # it may have been at its end, or not have got as far as its handler
    as_told = process["ended"] == expected or (may_be_late and process["ended"] in (0, -15))
    assert as_told, f"{story}: {process}\n{err}"
    assert process["ended"] != 0 or "\nOK " in f"\n{out}", f"{story}: {out!r}\n{err}"
    assert "Traceback" not in err or story.told["trouble"] == "full", f"{story}: {err}"
    assert "mstxkit: fault" not in err or story.told["trouble"] == "full", f"{story}: {err}"


def judge_profiles(story: Story, process: dict[str, Any]) -> None:
    """At most one profile at a time, ended by the thread that began it, and none left open but by a death."""
    calls = story.profiles(process["pid"])
    assert [call.call for call in calls] == (["aclprofStart", "aclprofStop"] * len(calls))[: len(calls)], story
    assert {call.tid for call in calls} <= {process["pid"]}, f"{story}: not on the main thread"
    if len(calls) % 2:
        assert has_died(process), f"{story}: process {process} ended in order and left a profile open"


def has_died(process: dict[str, Any]) -> bool:
    return bool((process["ended"] or 0) < 0)


def judge_sessions(story: Story, process: dict[str, Any]) -> None:
    """Every session that was begun was ended, and says so, but for the last one of a process that died in it."""
    own = sorted((one for one in story.sessions if one["pid"] == process["pid"]), key=lambda one: one["start_ns"])
    recording = [one for one in own if one["state"] == "recording"]
    starts = len([call for call in story.profiles(process["pid"]) if call.call == "aclprofStart"])
    assert len(recording) <= has_died(process), f"{story}: {recording}"
    assert all(one is own[-1] for one in recording), f"{story}: another session began while one was open"
    assert all(one["problems"] for one in own if one["state"] == "failed"), story
    assert len([one for one in own if one["state"] == "recorded"]) <= starts, f"{story}: recorded without a profile"
    assert starts <= len(own), f"{story}: a profile without a session.json"


def judge_devices(story: Story) -> None:
    """A device's next profile begins when the one before it was ended, or its process dead."""
    for rank in {process["rank"] for process in story.processes.values()}:
        free_ns = 0
        for process in story.processes.values():
            if process["rank"] == rank:
                calls = story.profiles(process["pid"])
                assert all(call.t_ns >= free_ns for call in calls[:1]), f"{story}: two sessions of one device"
                ends = [call.t_ns for call in calls if call.call == "aclprofStop"]
                free_ns = max([free_ns, *ends, *([process["killed_ns"] or 0] if len(calls) % 2 else [])])


def judge_requests(story: Story) -> None:
    """Each ends in a stated state on each rank that was asked, and what was recorded is what is said."""
    run = mstxkit.open_run(story.run)
    shown = {(row["request"], row["rank"]): row for row in rows_of(run)}
    words = {request.request.id: fate.Fates(story.said(), now_ns=FAR_NS).progress(request) for request in asked(story)}
    recorded: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for one in story.sessions:
        if one["request"]:
            recorded[one["request"], one["rank"]].append(one)
    for id, ranks in story.told["asked"]:
        for report in words[id].reports:
            row, sessions = shown[id, report.rank], recorded[id, report.rank]
            assert report.rank in ranks
            assert row["state"] in END_STATES, f"{story}: request {id} on rank {report.rank} is {row}"
            assert len({one["pid"] for one in sessions}) <= 1, f"{story}: {id} was recorded in two processes"
            whole = [one for one in sessions if one["state"] == "recorded"]
            assert report.recorded <= len(whole), f"{story}: {report} tells of more than {len(whole)}: {sessions}"
            assert report.state != "done" or report.recorded == len(whole), f"{story}: {report}, {len(whole)} sessions"
    assert set(recorded) <= {(id, rank) for id, ranks in story.told["asked"] for rank in ranks}, story


def rows_of(run: Any) -> list[dict[str, Any]]:
    from mstxkit.reading.tables import escalations

    return escalations.table(run.files, FAR_NS).to_dicts()


def asked(story: Story) -> list[fate.Asked]:
    return fate.read_asked(asking.control_of(story.run))


def judge_memories(story: Story) -> None:
    """The same request is under the same state for whoever would be restarted: nothing that ended waits again."""
    for one in story.said():
        memory = one.acknowledgement.document.get("memory")
        if memory is None:  # it only stood by, and was told of no request
            continue
        waiting = {told["request"]["id"] for told in memory["tasks"]}
        ended = {told["id"] for told in memory["ended"]}
        assert not waiting & ended, story


@pytest.mark.skipif(not soak.is_soaking(), reason="counted over all fifty")
def test_the_runs_were_worth_it(told: tuple[Path, CannRun]) -> None:
    """Kills in sessions, cancels, failures and recorded requests did occur: else the rest proves nothing."""
    folder, run = told
    stories = [Story(folder, seed, run.calls) for seed in SEEDS]
    states = [report.state for story in stories for one in asked(story)
              for report in fate.Fates(story.said(), now_ns=FAR_NS).progress(one).reports]  # fmt: skip
    died = [process for story in stories for process in story.processes.values() if has_died(process)]
    open_ones = [one for story in stories for one in story.sessions if one["state"] == "recording"]
    lights = [one for story in stories for one in story.sessions if one["stage"] == "light"]

    assert len(died) >= 20 and len(open_ones) >= 5 and len(lights) >= 20
    assert states.count("done") >= 50
    assert {"cancelled", "failed", "expired"} <= set(states)
