"""Steps count tokens or seconds in some programs: up to the largest that records hold, every file of a run has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.escalated_run import empty_run
from builders.escalation_world import request
from builders.run_files import RUN_ID
from builders.shown_job import ShownJob, role

from mstxkit.errors import ConfigError
from mstxkit.store import fate, job_file, layout, messages, settings_file, verdicts, whereabouts
from mstxkit.store.messages import Commit
from mstxkit.store.records import STEP_MAX
from mstxkit.store.report import Report
from mstxkit.store.settings_file import Figures
from mstxkit.store.verdicts import Verdict

STEPS = pytest.mark.parametrize("step", [0, 1 << 31, STEP_MAX])


@STEPS
def test_the_step_at_which_a_window_begins_is_agreed_on(step: int) -> None:
    assert messages.read_message(messages.of_decision(Commit("ab", step))) == Commit("ab", step)


def test_a_step_beyond_them_is_refused_with_what_may_be() -> None:
    with pytest.raises(ConfigError, match=f"a whole number from 0 to {STEP_MAX} is needed"):
        messages.read_message(messages.of_decision(Commit("ab", STEP_MAX + 1)))


@STEPS
def test_a_window_may_be_planned_for_it(step: int) -> None:
    planned = request(planned={"first_step": step + 1}).planned

    assert planned is not None
    assert planned.first_step == step + 1


@STEPS
def test_what_a_rank_says_of_its_window_is_sound(step: int) -> None:
    assert fate.is_sound(Report("ab", 3, "done", step, first_step=step, last_step=step, recorded_steps=(step,)))
    assert not fate.is_sound(Report("ab", 1 << 31, "done", step))


@STEPS
def test_verdicts_figures_and_the_job_are_of_it(tmp_path: Path, step: int) -> None:
    job = ShownJob(tmp_path)
    said = Verdict("1", 10, step, "compute", "actor_update", 3, since_step=step)
    (job.run / layout.VERDICTS).mkdir(exist_ok=True)
    (job.run / layout.VERDICTS / f"one{layout.VERDICTS_SUFFIX}").write_bytes(said.line())
    written = job.say(role("rollout", step))

    assert verdicts.read_verdicts(job.run) == [said]
    assert job_file.read_state(job.run, job.run_id) == written
    assert settings_file.figures_of(json.loads(Figures(step).as_json(RUN_ID))).step == step


@STEPS
def test_it_is_seen_where_a_process_is(tmp_path: Path, step: int) -> None:
    run = empty_run(tmp_path / "run")
    whereabouts.write_whereabouts(run, RUN_ID, run, [{"pid": 42, "rank": 3, "step": step}])

    assert [where.step for where in whereabouts.read_seen(run, RUN_ID)] == [step]
