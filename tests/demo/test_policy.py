"""The policy: causal, and the log-probs are those of what it samples."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from mstxkit.demo.policy import PolicyNet, response_log_probs, sample_responses  # noqa: E402
from mstxkit.demo.task import DIGITS, LENGTH, draw_prompts  # noqa: E402


def _policy() -> PolicyNet:
    torch.manual_seed(0)
    return PolicyNet()


def test_a_token_does_not_change_what_is_predicted_before_it() -> None:
    policy = _policy()
    sequences = torch.randint(DIGITS, (4, 10), generator=torch.Generator().manual_seed(1))
    changed = sequences.clone()
    changed[:, 6] = (changed[:, 6] + 1) % DIGITS

    before, after = policy(sequences), policy(changed)

    assert torch.allclose(before[:, :6], after[:, :6], atol=1e-5)
    assert not torch.allclose(before[:, 6], after[:, 6], atol=1e-5)


def test_log_probs_of_all_responses_add_up_to_one() -> None:
    prompt = draw_prompts(1, torch.Generator().manual_seed(1)).repeat(DIGITS, 1)
    responses = torch.zeros(DIGITS, LENGTH, dtype=torch.long)
    responses[:, 0] = torch.arange(DIGITS)

    first_tokens = response_log_probs(_policy(), prompt, responses)[:, 0].detach()

    assert float(first_tokens.exp().sum()) == pytest.approx(1.0, abs=1e-5)


def test_tokens_are_sampled_as_often_as_their_log_probs_say() -> None:
    random, policy = torch.Generator().manual_seed(1), _policy()
    prompts = draw_prompts(1, random).repeat(4000, 1)

    responses = sample_responses(policy, prompts, random)

    shares = torch.bincount(responses[:, 0], minlength=DIGITS) / len(responses)
    every_digit = torch.arange(DIGITS).unsqueeze(1).repeat(1, LENGTH)
    odds = response_log_probs(policy, prompts[:DIGITS], every_digit)[:, 0].exp()
    assert torch.allclose(shares, odds, atol=0.03)
