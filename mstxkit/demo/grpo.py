"""GRPO's arithmetic: pure functions of tensors, each of which can be checked by hand."""

from __future__ import annotations

import torch
from torch import Tensor


def group_relative_advantages(rewards: Tensor, group: int) -> Tensor:
    """How much better each response is than the others of its own prompt, in standard deviations of its group.

    Args:
        rewards: One per response, the `group` responses of a prompt next to each other.
        group: Responses per prompt, at least 2.

    Returns: the same shape; each group's mean is zero, and a group of equal rewards is all zeros.
    """
    groups = rewards.view(-1, group)
    centred = groups - groups.mean(dim=1, keepdim=True)
    return (centred / (groups.std(dim=1, keepdim=True) + 1e-4)).view(-1)


def clipped_policy_loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """PPO's pessimistic bound: moving a token's odds beyond 1 ± `clip` of its old odds is not rewarded.

    Shape: (rows, tokens) for both log-probs, (rows,) for advantages; a scalar, mean over all tokens.
    """
    ratio = (log_probs - old_log_probs).exp()
    advantages = advantages.unsqueeze(1)
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()


def kl_to_reference(log_probs: Tensor, reference_log_probs: Tensor) -> Tensor:
    """Unbiased, never negative estimate of KL(policy ‖ reference) from the sampled tokens, in nats a token."""
    difference = reference_log_probs - log_probs
    return (difference.exp() - difference - 1).mean()
