"""The verifiable task: sort the digits of a prompt. Checking an answer needs no model, only `sorted`.

A prompt is `LENGTH` random digits and a separator, the answer the same digits in ascending order. An untrained policy
gets one token in ten right.
"""

from __future__ import annotations

import torch
from torch import Tensor

DIGITS = 10
SEPARATOR = DIGITS
LENGTH = 6
PROMPT_LENGTH = LENGTH + 1


def draw_prompts(count: int, random: torch.Generator) -> Tensor:
    """Random prompts. Shape: (count, PROMPT_LENGTH), token ids."""
    digits = torch.randint(DIGITS, (count, LENGTH), generator=random)
    return torch.cat([digits, torch.full((count, 1), SEPARATOR)], dim=1)


def fraction_correct(prompts: Tensor, responses: Tensor) -> Tensor:
    """The rule reward: which part of each response's tokens is right. Shape: (rows,), from 0 to 1."""
    answers = prompts[:, :LENGTH].sort(dim=1).values
    return (responses == answers).float().mean(dim=1)
