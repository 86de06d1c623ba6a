"""A run's own stages as steps that can be judged: of whom, when, how much work, and only steps that are over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.judged_runs import MS, NOBODY, recorded, stage_times
from builders.run_files import BankFiles, ProcessFiles, alive, new_run

np = pytest.importorskip("numpy")
pytest.importorskip("polars")

from mstxkit.judging.clock_bounds import WALL_ERROR_NS  # noqa: E402
from mstxkit.reading.judged import from_steps  # noqa: E402
from mstxkit.reading.run import open_run  # noqa: E402
from mstxkit.reading.tables import role_steps  # noqa: E402


def bank(*steps: int, stage: str = "reward", begin: int = 0, ms: int = 10, **attributes: Any) -> BankFiles:
    made = BankFiles()
    for step in steps:
        at = begin + 100 * step * MS
        made.range(stage, at, at + ms * MS, stage=stage, own=True, step=step, **attributes)
    return made


def test_a_step_has_the_times_of_each_member_in_each_stage(run: Path) -> None:
    twice = bank(3, begin=5 * MS).range("update", 350 * MS, 354 * MS, stage="update", own=True, step=3)
    ProcessFiles(run, 1, rank=0, host="h").seal(
        twice.range("reward", 330 * MS, 332 * MS, stage="reward", own=True, step=3)
    )
    ProcessFiles(run, 2, rank=1, host="h").seal(bank(3))

    (step,) = open_run(run).roles.steps

    assert (step.role, step.step, step.stages) == ("", 3, ("reward", "update"))
    assert [(peer.rank, peer.host, peer.is_controller) for peer in step.members] == [(0, "h", False), (1, "h", False)]
    assert step.entered_s == pytest.approx(np.array([[0.005, 0.05], [0.0, np.nan]]), nan_ok=True)
    assert step.left_s == pytest.approx(np.array([[0.032, 0.054], [0.01, np.nan]]), nan_ok=True)
    assert step.total_s == pytest.approx(np.array([[0.012, 0.004], [0.01, np.nan]]), nan_ok=True)
    assert step.occurrences.tolist() == [[2, 1], [1, 0]]


def test_work_is_what_ranges_say_and_prompts_count_where_they_name_no_responses(run: Path) -> None:
    ProcessFiles(run, 1, rank=0).seal(bank(0, tokens=700, responses=4, prompts=2, longest_response=300))
    ProcessFiles(run, 2, rank=1).seal(bank(0, prompts=2))

    (step,) = open_run(run).roles.steps

    assert step.work.tokens == pytest.approx(np.array([[700], [np.nan]]), nan_ok=True)
    assert step.work.responses.tolist() == [[4], [2]]
    assert step.work.longest_response == pytest.approx(np.array([[300], [np.nan]]), nan_ok=True)


def test_work_is_that_of_an_engines_steps_where_the_stage_around_them_does_not_say(run: Path) -> None:
    """vLLM inside of MindSpeed-RL's worker: in a live job these count too."""
    for process, steps in enumerate((bank(0), bank(0, tokens=50))):
        for at in (1, 4):
            steps.range("step", at * MS, (at + 2) * MS, stage="reward", own=True, step=0, depth=1, tokens=30)
        ProcessFiles(run, process + 1, rank=process).seal(steps)

    (step,) = open_run(run).roles.steps

    assert step.occurrences.tolist() == [[1], [1]]
    assert step.work.tokens.tolist() == [[60], [50]]


def test_a_rank_with_more_tokens_in_its_engines_steps_is_no_slow_machine(run: Path) -> None:
    for rank in range(4):
        made = BankFiles()
        for step in range(40):
            at, ms = 1000 * step * MS, (150 if rank == 3 else 100) + (7 * rank + 5 * step) % 6
            made.range("generate_sequences", at, at + ms * MS, stage="actor_generate", own=True, step=step)
            made.range(
                "execute_model", at + MS, at + (ms - 1) * MS, stage="actor_generate", own=True, step=step, depth=1,
                tokens=10 * ms,
            )  # fmt: skip
            made.range("update", at + 400 * MS, at + 500 * MS, stage="actor_update", own=True, step=step)
        ProcessFiles(run, rank + 1, rank=rank).seal(made)

    judged = from_steps(open_run(run).roles.steps)

    assert [(one.kind, one.rank, one.stage) for one in judged.blaming] == [("imbalance", 3, "actor_generate")]


def test_stages_have_their_canonical_keys_by_whatever_name_they_were_recorded(run: Path) -> None:
    ProcessFiles(run, 1, rank=0).seal(bank(0, stage="update_actor"))
    ProcessFiles(run, 2, rank=1).seal(bank(0, stage="actor_update"))

    (step,) = open_run(run).roles.steps

    assert step.stages == ("actor_update",)
    assert step.occurrences.tolist() == [[1], [1]]


def test_roles_are_judged_apart_and_a_rank_is_not_compared_with_what_works_beside_it(run: Path) -> None:
    ProcessFiles(run, 1, rank=0, role="actor").seal(bank(0))
    ProcessFiles(run, 2, rank=1, role="actor").seal(bank(0))
    ProcessFiles(run, 3, rank=0, role="rollout").seal(bank(0, begin=MS))
    ProcessFiles(run, 4, rank=0, role="actor", under="dataloader", part="dataloader 3").seal(bank(0, begin=2 * MS))

    opened = open_run(run)
    rows, processes = opened.files.stage_rows, opened.processes()
    own, every = (role_steps.of_run(rows, processes, has_beside) for has_beside in (False, True))

    assert sorted((step.role, len(step.members)) for step in own) == [("actor", 2), ("rollout", 1)]
    assert sorted((step.role, len(step.members)) for step in every) == [("actor", 1), ("actor", 2), ("rollout", 1)]


def test_a_driver_that_waits_is_a_controller_and_its_waits_are_nobodys_time(run: Path) -> None:
    ProcessFiles(run, 1, rank=None).seal(bank(0, stage="adv").range(
        "reward", 0, 50 * MS, stage="reward", own=True, step=0, waits_for="workers"
    ))  # fmt: skip
    ProcessFiles(run, 2, rank=0).seal(bank(0))

    (step,) = open_run(run).roles.steps

    driver = [peer.is_controller for peer in step.members].index(True)
    assert np.isnan(step.entered_s[driver, step.stages.index("reward")])


def test_a_stage_that_only_waits_for_another_role_is_one_of_its_rank_and_says_for_whom(run: Path) -> None:
    """The rank goes on to be compared, in what it computes; a rank of another role is not told so for it."""
    for rank in (0, 1):
        files = bank(0, stage="wait_for_samples", waits_for="rollout").range(
            "update", 20 * MS, 50 * MS, stage="update", own=True, step=0
        )
        ProcessFiles(run, 1 + rank, rank=rank, role="actor", place=f"pp{rank}").seal(files)
    ProcessFiles(run, 3, rank=0, role="rollout").seal(bank(0, stage="wait_for_samples"))

    actor, rollout = sorted(open_run(run).roles.steps, key=lambda step: step.role)

    assert [(peer.is_controller, peer.place) for peer in actor.members] == [(False, "pp0"), (False, "pp1")]
    assert (actor.waits_for, rollout.waits_for) == ({"wait_for_samples": "rollout"}, {})
    assert np.isfinite(actor.total_s).all() and set(actor.stages) == {"wait_for_samples", "update"}


def test_who_only_waits_is_a_controller(run: Path) -> None:
    ProcessFiles(run, 1, rank=None).seal(bank(0, waits_for="rollout"))
    ProcessFiles(run, 2, rank=0).seal(bank(0))

    (step,) = open_run(run).roles.steps

    assert [peer.is_controller for peer in step.members if peer.rank is None] == [True] * (len(step.members) - 1)


def test_the_last_step_of_a_process_that_goes_on_is_not_over(run: Path) -> None:
    ProcessFiles(run, 1, rank=0).live(bank(0, 1), pointer=alive())
    ProcessFiles(run, 2, rank=1).seal(bank(0, 1), ended=None)

    assert [step.step for step in open_run(run).roles.steps] == [0]


def test_a_step_in_which_a_rank_went_away_without_a_word_is_left_out(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    ProcessFiles(run, 1, rank=0).seal(bank(0, 1, 2))
    ProcessFiles(run, 2, rank=1).live(bank(0, 1))

    assert [step.step for step in open_run(run).roles.steps] == [0, 2]


def test_times_of_two_hosts_have_the_error_of_their_wall_clocks(run: Path) -> None:
    ProcessFiles(run, 1, rank=0, host="a").seal(bank(0))
    ProcessFiles(run, 2, rank=1, host="b").seal(bank(0))

    (step,) = open_run(run).roles.steps

    assert step.error_s.min() >= WALL_ERROR_NS / 1e9


def test_ranks_on_one_host_have_one_clock_wherever_others_of_the_run_are(run: Path) -> None:
    """Another role, a driver that waits for them, and their own lives on a host before the job went to this one."""
    for rank in (0, 1):
        ProcessFiles(run, 1 + rank, rank=rank, role="actor", host="before").seal(bank(0))
        ProcessFiles(run, 3 + rank, rank=rank, role="actor", host="a").seal(bank(1))
    ProcessFiles(run, 5, rank=2, role="rollout", host="b").seal(bank(1))
    ProcessFiles(run, 6, rank=None, role="actor", host="c").seal(bank(1, waits_for="workers"))

    steps = open_run(run).roles.steps

    assert [(step.role, step.step, step.error_s.max()) for step in steps if len(step.members) > 1] == [
        ("actor", 0, 0.0), ("actor", 1, 0.0)
    ]  # fmt: skip


def test_steps_come_in_the_order_in_which_they_ended(tmp_path: Path) -> None:
    steps = open_run(recorded(tmp_path / "run", stage_times(NOBODY, ranks=3, steps=12))).roles.steps

    assert [step.step for step in steps] == list(range(12))


def test_what_is_in_no_step_is_judged_in_none(run: Path) -> None:
    ProcessFiles(run, 1, rank=0).seal(BankFiles().range("reward", 0, MS, stage="reward", own=True))

    assert open_run(run).roles.steps == []
