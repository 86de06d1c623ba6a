"""How long work takes that was drawn: costs that no model has."""

from __future__ import annotations

from mstxkit.testing.simulator.work import Matrix, Vector


def generation_cost(lengths: Matrix, mismatch: float) -> Vector:
    """(ranks,) about 1: steps of decoding go with the longest response, their cost with what runs beside it.

    With a mismatch, attention grows with the square of the length, and small batches decode faster.
    """
    longest, tokens = lengths.max(axis=1), lengths.sum(axis=1)
    plain = 0.6 * longest / 5000 + 0.4 * tokens / (lengths.shape[1] * 1650)
    # Responses that still run, in the middle of the decoding: no summary has that.
    running = (lengths > longest[:, None] / 2).mean(axis=1)
    square = (lengths**2).sum(axis=1) / (lengths.shape[1] * 1650**2 * 1.9)
    cost: Vector = plain * (1 + mismatch * 0.5 * (running - 0.25)) + mismatch * 0.1 * square
    return cost


def training_cost(tokens: Vector, usual: float, mismatch: float) -> Vector:
    """(ranks,) about 1: tokens, and with a mismatch their square and the padding of the last batch."""
    ratio = tokens / usual
    cost: Vector = ratio * (1 - 0.2 * mismatch) + 0.2 * mismatch * ratio**2
    return cost
