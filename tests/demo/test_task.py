"""The task: answers are checked by rule."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from mstxkit.demo.task import DIGITS, LENGTH, PROMPT_LENGTH, SEPARATOR, draw_prompts, fraction_correct  # noqa: E402


def test_a_prompt_is_digits_and_a_separator() -> None:
    prompts = draw_prompts(50, torch.Generator().manual_seed(0))

    assert prompts.shape == (50, PROMPT_LENGTH)
    assert bool((prompts[:, :LENGTH] < DIGITS).all())
    assert bool((prompts[:, LENGTH] == SEPARATOR).all())


def test_the_reward_is_the_part_of_the_tokens_that_is_right() -> None:
    prompt = torch.tensor([[3, 1, 2, 9, 0, 4, SEPARATOR]] * 3)
    responses = torch.tensor([[0, 1, 2, 3, 4, 9], [0, 1, 2, 9, 9, 0], [9, 4, 3, 2, 1, 0]])

    assert fraction_correct(prompt, responses).tolist() == [1.0, 0.5, 0.0]
