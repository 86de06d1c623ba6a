"""GRPO's arithmetic, against figures worked out by hand."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from mstxkit.demo.policy import clipped_policy_loss, group_relative_advantages, kl_to_reference  # noqa: E402


def test_advantages_of_a_group_have_zero_mean_and_unit_deviation() -> None:
    rewards = torch.rand(6 * 8, generator=torch.Generator().manual_seed(0))

    groups = group_relative_advantages(rewards, group=8).view(6, 8)

    assert torch.allclose(groups.mean(dim=1), torch.zeros(6), atol=1e-6)
    assert torch.allclose(groups.std(dim=1), torch.ones(6), atol=2e-3)


def test_a_response_is_measured_against_its_own_group_only() -> None:
    advantages = group_relative_advantages(torch.tensor([0.0, 1.0, 10.0, 30.0]), group=2)

    assert torch.allclose(advantages, torch.tensor([-1.0, 1.0, -1.0, 1.0]) / math.sqrt(2), atol=1e-3)


def test_a_group_of_equal_rewards_teaches_nothing() -> None:
    assert group_relative_advantages(torch.full((8,), 0.7), group=8).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (1.0, 2.0, -2.0),
        (1.1, 2.0, -2.2),  # inside the clip range: as it is
        (1.5, 2.0, -2.4),  # better than allowed: 1.2 · 2
        (0.5, -2.0, 1.6),  # worse token made rarer than allowed: 0.8 · 2
        (1.5, -2.0, 3.0),  # moved the wrong way: not clipped
        (0.5, 2.0, -1.0),
    ],
)
def test_the_loss_is_the_pessimistic_one_of_clipped_and_unclipped(ratio: float, advantage: float, loss: float) -> None:
    old = torch.tensor([[-2.0]])
    new = old + math.log(ratio)

    assert float(clipped_policy_loss(new, old, torch.tensor([advantage]), clip=0.2)) == pytest.approx(loss, abs=1e-5)


def test_a_clipped_token_has_no_gradient_and_an_unclipped_one_has() -> None:
    old = torch.full((2, 1), -2.0)
    new = (old + torch.tensor([[math.log(1.5)], [math.log(1.1)]])).requires_grad_()

    clipped_policy_loss(new, old, torch.tensor([1.0, 1.0]), clip=0.2).backward()

    assert new.grad is not None
    assert new.grad.flatten().tolist() == pytest.approx([0.0, -1.1 / 2], abs=1e-5)


def test_the_kl_estimate_is_zero_for_equal_policies_and_positive_for_others() -> None:
    log_probs = torch.tensor([[-1.0, -2.0]])

    assert float(kl_to_reference(log_probs, log_probs)) == 0.0
    assert float(kl_to_reference(log_probs, log_probs + math.log(2))) == pytest.approx(1 - math.log(2), abs=1e-5)
    assert float(kl_to_reference(log_probs, log_probs - math.log(2))) == pytest.approx(math.log(2) - 0.5, abs=1e-5)
