"""The policy: a causal transformer of two layers and some 70,000 weights, how it samples, and its log-probabilities."""

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
