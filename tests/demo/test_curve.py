"""The reward curve: what the demo says about learning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mstxkit.demo.launch import CURVE, measure_learning


def test_the_last_steps_are_compared_with_the_first(tmp_path: Path) -> None:
    rewards = [0.1] * 5 + [0.3] * 20 + [0.5] * 5
    (tmp_path / CURVE).write_text("".join(json.dumps({"reward": reward}) + "\n" for reward in rewards))

    figures = measure_learning(tmp_path)

    assert (figures.steps, figures.first_reward, figures.final_reward) == pytest.approx((30, 0.1, 0.5))
    assert figures.ratio == pytest.approx(5.0)


def test_a_run_without_a_finished_step_has_learnt_nothing(tmp_path: Path) -> None:
    figures = measure_learning(tmp_path)

    assert (figures.steps, figures.ratio) == (0, 0.0)


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / CURVE).write_text('{"step": 0, "reward": 0.25, "kl": 0.0}\n{"step": 1, "rew')

    figures = measure_learning(tmp_path)

    assert (figures.steps, figures.first_reward, figures.final_reward) == (1, 0.25, 0.25)
