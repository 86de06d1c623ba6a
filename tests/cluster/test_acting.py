"""Caught in the act: a job's own judge, beside real ranks, has a slow one profiled by itself, together with a peer."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest
from builders import beside
from builders.waiting import until

from mstxkit.escalation import asking
from mstxkit.judging.acting import verdict_in
from mstxkit.reading.run import open_run
from mstxkit.store import fate, verdicts
from mstxkit.store.verdicts import Verdict

pytestmark = [
    pytest.mark.days("odd"),
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]

RANK = Path(__file__).resolve().parents[1] / "builders" / "acting_rank.py"
ROOT = RANK.parents[2]
RANKS, STEP_MS, WITHIN_S = 2, 150, 120.0


class Job:
    """Ranks under torchrun that let verdicts act, on one host."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder, self.run = folder, folder / "run"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MSTXKIT_")}
        env = {
            **kept, "PYTHONPATH": str(ROOT), "MSTXKIT_RUN": str(self.run), "MSTXKIT_ACT": "escalate",
            "MSTXKIT_TRANSPORT_S": "0.5", "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **variables,
        }  # fmt: skip
        words = [str(RANK), str(time.monotonic_ns() + 8 * 10**9), str(STEP_MS), "1", str(folder)]
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        self.process = subprocess.Popen([sys.executable, *launcher, *words], env=env, start_new_session=True)

    def acted(self) -> list[Verdict]:
        """Verdicts that a request came of."""
        return [verdict for verdict in verdicts.read_verdicts(self.run) if verdict.request]

    def asked(self) -> list[fate.Asked]:
        try:
            return fate.read_asked(asking.control_of(self.run))
        except Exception:
            return []

    def progress(self, id: str) -> fate.Progress:
        control = asking.control_of(self.run)
        return asking.fates_of(control).progress(asking.find_request(control, id))

    def end(self) -> int:
        (self.folder / "end").touch()
        return self.process.wait(WITHIN_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pid in beside.pids(self.run, beside.JUDGE):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """One whose verdict was acted on; then its judge was killed, and another one went on."""
    job = Job(tmp_path_factory.mktemp("acting"))
    try:
        (id,) = until(lambda: [verdict.request for verdict in job.acted()])
        until(lambda: job.progress(id).has_ended)
        (first,) = until(lambda: beside.pids(job.run, beside.JUDGE))
        os.kill(first, signal.SIGKILL)
        until(lambda: beside.pids(job.run, beside.JUDGE) not in ([], [first]))
        until(lambda: _goes_on(job))
        assert job.end() == 0
        until(lambda: not beside.pids(job.run, beside.JUDGE))
        yield job
    finally:
        job.kill()


def _goes_on(job: Job) -> bool:
    """Has the second judge judged a while?"""
    from mstxkit.store import layout, run_file, settings_file

    file = job.run / layout.VERDICTS / layout.FIGURES
    before = settings_file.read_figures(file, run_file.id_of(job.run) or "")
    time.sleep(3)
    after = settings_file.read_figures(file, run_file.id_of(job.run) or "")
    return before is not None and after is not None and (after.step or 0) > (before.step or 0)


def test_the_suspect_and_its_peer_are_profiled_in_the_same_step_of_the_stage_that_was_named(job: Job) -> None:
    (verdict,) = job.acted()
    sessions = [json.loads(file.read_text()) for file in sorted(job.run.glob("profiles/**/session.json"))]

    assert (verdict.kind, verdict.rank, verdict.stage) == ("compute", 1, "actor_generate")
    assert [(one["rank"], one["stage"], one["state"], one["problems"]) for one in sessions] == [
        (0, "actor_generate", "recorded", []), (1, "actor_generate", "recorded", []),
    ]  # fmt: skip
    assert sessions[0]["steps"] == sessions[1]["steps"]
    assert {one["request"] for one in sessions} == {verdict.request}


def test_a_judge_that_was_killed_is_followed_by_one_that_does_not_ask_again(job: Job) -> None:
    (asked,) = job.asked()
    (verdict,) = job.acted()

    assert verdict_in(asked.request.occasion) is not None
    assert asked.request.id == verdict.request


def test_the_tables_of_the_run_say_what_it_asked_for_and_what_became_of_it(job: Job) -> None:
    run = open_run(job.run)
    said, became = run.verdicts().to_dicts(), run.escalations().to_dicts()

    (id,) = {row["request"] for row in said if row["request"]}
    assert [(row["request"], row["rank"], row["state"], row["preset"]) for row in became] == [
        (id, 0, "done", "full"), (id, 1, "done", "full"),
    ]  # fmt: skip
    assert all((job.run / row["folder"]).is_dir() for row in became)


def test_a_rank_that_recovers_in_time_is_not_profiled(tmp_path: Path) -> None:
    """Its request waits here for a step that is far ahead; the verdict is withdrawn before that comes."""
    job = Job(tmp_path, MSTXKIT_TRANSPORT_S="600", MSTXKIT_AGREEMENT_S="600")
    try:
        (id,) = until(lambda: [verdict.request for verdict in job.acted()])
        (tmp_path / "well").touch()
        until(lambda: job.progress(id).has_ended)
        states = {report.state for report in job.progress(id).reports}
        reasons = {report.reason for report in job.progress(id).reports}
        assert job.end() == 0
    finally:
        job.kill()

    assert states == {"cancelled"}
    assert all(reason.startswith("the verdict was withdrawn: not seen any more") for reason in reasons)
    assert not list(job.run.glob("profiles/**/session.json"))
