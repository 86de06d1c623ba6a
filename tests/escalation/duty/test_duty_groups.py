"""Four ranks with real process groups, dp 2 × tp 2, are asked by what they are, from outside and from inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders import lives

from mstxkit.errors import MstxkitError
from mstxkit.escalation import asking
from mstxkit.recorder import adopt
from mstxkit.store import fate
from mstxkit.store.request import Request

TESTS = Path(__file__).parents[2]
PROGRAM = TESTS / "builders" / "grouped_ranks.py"
STAGE = "actor_update"


def heard(run: Path) -> list[fate.Heard]:
    try:
        return fate.read_heard(asking.control_of(run))
    except MstxkitError:
        return []  # no run yet


def ended(run: Path, request_id: str) -> fate.Progress:
    control = asking.control_of(run)
    asked = asking.find_request(control, request_id)
    assert lives.wait_until(lambda: fate.Fates(heard(run)).progress(asked).has_ended)
    return fate.Fates(heard(run)).progress(asked)


def ask(run: Path, ranks: str, occasion: str) -> Request:
    fields = {"stages": [STAGE], "ranks": ranks, "steps": 2, "occasion": occasion}
    return asking.ask_ranks(run, fields, asking.find_ranks(run, fields))


def done(run: Path, ranks: str) -> fate.Progress:
    """Asked until one was recorded everywhere: on a busy host a step may begin before its ranks hear of it."""
    for attempt in range(20):
        progress = ended(run, ask(run, ranks, str(attempt)).id)
        if progress.is_done:
            return progress
    raise AssertionError(progress)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of a job that trains until the test is over."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    paths = os.pathsep.join([str(lives.PACKAGE_PARENT), str(TESTS)])
    variables = lives.environment(PYTHONPATH=paths, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    with lives.own_run(tmp_path):
        command = [sys.executable, str(PROGRAM), str(tmp_path), str(tmp_path / "run")]
        process = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)
        yield tmp_path
        (tmp_path / "end").touch()
        _, err = process.communicate(timeout=lives.FINISHES_WITHIN_S)
        while adopt.collect_dead(tmp_path / "run"):
            pass
    assert process.returncode == 0, err


def places(run: Path) -> dict[int, Any]:
    return {one.rank: dict(one.standing.groups) for one in heard(run)}


def test_ranks_are_asked_by_their_place_in_parallel_groups(folder: Path) -> None:
    """From outside, and from inside, by all ranks in the same step: that is one request."""
    run = folder / "run"
    layout = {rank: {"dp": (rank // 2, 2), "tp": (rank % 2, 2)} for rank in range(4)}
    assert lives.wait_until(lambda: places(run) == layout), places(run)

    peers = done(run, "peers:1")  # rank 0, which agrees elsewhere, is none of them
    (folder / "ask").touch()
    assert lives.wait_until(lambda: any(one.request.ranks == "dp:1" for one in fate.read_asked(asking.control_of(run))))
    from_inside = [one for one in fate.read_asked(asking.control_of(run)) if one.request.ranks == "dp:1"]

    assert [report.rank for report in peers.reports] == [1, 3]
    assert len({tuple(report.recorded_steps) for report in peers.reports}) == 1
    assert [one.suspects for one in from_inside] == [(2, 3)]
    assert [report.rank for report in ended(run, from_inside[0].request.id).reports] == [2, 3]
    (folder / "end").touch()
    files = [folder / f"{rank}.json" for rank in range(4)]
    assert lives.wait_until(lambda: all(file.exists() and file.read_text() for file in files))
    told = [json.loads(file.read_text()) for file in files]
    assert {one["id"] for one in told} == {from_inside[0].request.id}
    assert [(one["wrong"], {id for id, _ in one["orders"]} & {one["id"]}) for one in told[:2]] == [([], set())] * 2
