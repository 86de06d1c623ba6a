"""What ranks on gloo enter, send and receive is what the judge is given, step by step, unasked, and no ring is on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest
from builders import lives

from mstxkit.judging.evidence import MEET, RECEIVE, SEND, Collectives, RoleStep
from mstxkit.reading.run import open_run
from mstxkit.store import layout

pytestmark = [pytest.mark.days("even"), pytest.mark.frameworks]

RANK_OF = Path(__file__).parent.parent / "builders" / "called_ranks.py"
STEPS, MICROBATCHES = 6, 4
KINDS = {"meet": MEET, "send": SEND, "recv": RECEIVE}
# A wait is kept in whole microseconds.
ROUNDED_S = 2e-6
# What a rank has noted: what, ranks, which, stage, before, begun to wait, after.
Noted = list[Any]
Told = tuple[int, tuple[int, ...], int, "str | None"]


class Job:
    """A job that is over: of each rank what it noted, step by step, and the steps that the judge was given."""

    def __init__(self, folder: Path, kind: str, ranks: int) -> None:
        run = folder / "run"
        started = [
            subprocess.Popen(
                [sys.executable, str(RANK_OF), kind, str(run), str(rank), str(ranks), str(STEPS)],
                env=lives.environment(RANK=str(rank), WORLD_SIZE=str(ranks), TORCH_FR_BUFFER_SIZE="0"),
                stderr=subprocess.PIPE, text=True,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        failed = [said for process in started for said in [process.communicate(timeout=100)[1]] if process.returncode]
        assert not failed, failed[0]
        self.notes = [json.loads(Path(f"{run}.{rank}.json").read_text()) for rank in range(ranks)]
        self.steps: list[RoleStep] = open_run(run).roles.steps_ringed
        assert not list((run / layout.LIVE).iterdir())

    def entered(self, number: int) -> Collectives:
        entered = self.steps[number].collectives
        assert self.steps[number].step == number
        assert entered is not None
        return entered

    def told(self, number: int, member: int) -> list[Told]:
        """Of one step and member, as notes are compared with it."""
        return [told for told, at in self.rows(number) if self.entered(number).member[at] == member]

    def rows(self, number: int) -> Iterator[tuple[Told, int]]:
        entered, stages = self.entered(number), self.steps[number].stages
        assert entered.kind is not None
        for at, (kind, group, which, stage) in enumerate(
            zip(entered.kind.tolist(), entered.group.tolist(), entered.sequence.tolist(), entered.stage.tolist())
        ):
            yield (kind, tuple(entered.groups[group]), which, stages[stage] if stage >= 0 else None), at


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("pipeline"), "pipeline", 4)


@pytest.fixture(scope="module")
def pipelining(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("pipelining"), "pipelining", 3)


def as_told(note: Noted) -> Told:
    return KINDS[note[0]], tuple(note[1]), note[2], note[3]


def test_each_step_has_what_each_rank_entered_sent_and_received_and_which_it_was(pipeline: Job) -> None:
    """In the first step what came before its first stage is of none: the loop may not have begun."""
    for number in range(1, STEPS):
        for rank, notes in enumerate(pipeline.notes):
            assert sorted(pipeline.told(number, rank), key=str) == sorted(map(as_told, notes[number]), key=str)


def test_times_are_those_of_the_call_and_of_the_wait(pipeline: Job) -> None:
    """There is one shift of the clock with which all lie where the ranks saw them."""
    at_least, at_most = [], []
    for number in range(1, STEPS):
        entered = pipeline.entered(number)
        assert entered.waited_s is not None
        noted = [{as_told(note): note[4:] for note in notes[number]} for notes in pipeline.notes]
        for told, at in pipeline.rows(number):
            before, waits, after = (ns / 1e9 for ns in noted[entered.member[at]][told])
            began = entered.left_s[at] - entered.waited_s[at]
            is_asynchronous = waits > before
            at_most += [entered.entered_s[at] - before, began - waits, entered.left_s[at] - waits]
            at_least += [entered.entered_s[at] - (waits if is_asynchronous else after), entered.left_s[at] - after]

    assert len(at_least) > 100
    assert max(at_least) <= min(at_most) + ROUNDED_S


def test_entries_of_gloo_are_those_of_the_work_itself(pipeline: Job) -> None:
    entered = pipeline.entered(STEPS - 1)

    assert entered.is_of_host is not None
    assert not entered.is_of_host.any()
    assert entered.source == "call"


def test_torchs_own_pipelining_hands_over_each_microbatch_forward_and_backward(pipelining: Job) -> None:
    count, ranks = MICROBATCHES, 3
    for number in range(STEPS):
        for rank in range(ranks):
            told = [(kind, pair) for kind, pair, _, stage in pipelining.told(number, rank) if stage == "actor_update"]
            down = [(SEND, (rank, rank + 1)), (RECEIVE, (rank + 1, rank))] if rank < ranks - 1 else []
            up = [(RECEIVE, (rank - 1, rank)), (SEND, (rank, rank - 1))] if rank else []
            assert sorted(told) == sorted((down + up) * count)


def test_a_microbatch_is_computed_after_it_was_received_and_before_it_is_sent_on(pipelining: Job) -> None:
    """There is one shift of the clock with which all that was recorded lies so beside what the stages have noted."""
    at_least, at_most = [], []
    for number in range(STEPS):
        entered = pipelining.entered(number)
        for rank, notes in enumerate(pipelining.notes):
            *computed, (*_, before, _, after) = notes[number]
            (met,) = np.flatnonzero((entered.member == rank) & (entered.kind == MEET))
            at_least.append(entered.entered_s[met] - after / 1e9)
            at_most.append(entered.entered_s[met] - before / 1e9)
            came = times(pipelining, number, rank, (RECEIVE, (rank - 1, rank)), entered.left_s)
            went = times(pipelining, number, rank, (SEND, (rank, rank + 1)), entered.entered_s)
            assert len(computed) == MICROBATCHES
            at_least += [left - note[4] / 1e9 for left, note in zip(came, computed)]
            at_most += [sent - note[6] / 1e9 for sent, note in zip(went, computed)]

    assert len(at_least) == STEPS * (3 + 2 * MICROBATCHES)
    assert max(at_least) <= min(at_most)


def times(job: Job, number: int, member: int, of: tuple[int, tuple[int, int]], which: Any) -> list[float]:
    """Those times of one member's sends or receives of a pair, in their order."""
    members = job.entered(number).member
    found = {told[2]: which[at] for told, at in job.rows(number) if told[:2] == of and members[at] == member}
    return [found[key] for key in sorted(found)]
