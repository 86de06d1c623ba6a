"""The policy: a causal transformer of two layers and some 70,000 weights, how it samples, and its log-probabilities;
GRPO's arithmetic: pure functions of tensors, each of which can be checked by hand.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mstxkit.demo.task import DIGITS, LENGTH, PROMPT_LENGTH

WIDTH, HEADS, LAYERS = 64, 4, 2


class AttentionBlock(nn.Module):
    """Causal self-attention and a feed-forward net, each on a normalised residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH)
        self.attended = nn.Linear(WIDTH, WIDTH)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Shape in and out: (rows, tokens, WIDTH)."""
        rows, tokens, _ = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).view(rows, tokens, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(mixed.transpose(1, 2).reshape(rows, tokens, WIDTH))
        x = x + self.feed_forward(x)
        return x


class PolicyNet(nn.Module):
    """Token ids in, logits of the next digit out. The weights are drawn from torch's global random state."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(DIGITS + 1, WIDTH)
        self.places = nn.Embedding(PROMPT_LENGTH + LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(AttentionBlock() for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, DIGITS))
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.5)

    def forward(self, sequences: Tensor) -> Tensor:
        """Shape: (rows, tokens) to (rows, tokens, DIGITS)."""
        x = self.tokens(sequences) + self.places.weight[: sequences.shape[1]]
        logits: Tensor = self.head(self.blocks(x))
        return logits


@torch.no_grad()
def sample_responses(policy: PolicyNet, prompts: Tensor, random: torch.Generator) -> Tensor:
    """Sample one response per prompt, token by token, at temperature 1. Shape: (rows, LENGTH)."""
    sequences = prompts
    for _ in range(LENGTH):
        odds = policy(sequences)[:, -1].softmax(dim=-1)
        sequences = torch.cat([sequences, torch.multinomial(odds, 1, generator=random)], dim=1)
    return sequences[:, PROMPT_LENGTH:]


def response_log_probs(policy: PolicyNet, prompts: Tensor, responses: Tensor) -> Tensor:
    """Log-probability of each response token, given what is before it. Shape: (rows, LENGTH)."""
    sequences = torch.cat([prompts, responses], dim=1)
    logits = policy(sequences[:, :-1])[:, PROMPT_LENGTH - 1 :]
    log_probs: Tensor = logits.log_softmax(dim=-1).gather(-1, responses.unsqueeze(-1)).squeeze(-1)
    return log_probs


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
