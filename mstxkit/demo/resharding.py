"""Weights in the training layout, and their way into a model: each rank owns and optimises one slice of them.

As in a distributed optimizer, all weights are one flat vector, padded and cut into as many slices as there are ranks.
A rank holds the optimizer's state for its slice only, so after an update nobody has all weights: a model, be it the
one that trains or the one that generates, gets them by an all-gather.
"""

from __future__ import annotations

from typing import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class ShardedWeights:
    """This rank's slice of the weights of `model`, the same on every rank, and Adam for that slice."""

    def __init__(self, model: nn.Module, learning_rate: float) -> None:
        weights = parameters_to_vector(model.parameters()).detach()
        self.count = weights.numel()
        self.shard = nn.Parameter(self._slice_of(weights).clone())
        self._optimizer = torch.optim.Adam([self.shard], lr=learning_rate)

    def _slice_of(self, vector: Tensor) -> Tensor:
        """Cut out this rank's part of a vector of all weights, filled up with zeros at the end."""
        ranks = dist.get_world_size()
        width = -(-self.count // ranks)
        padded = nn.functional.pad(vector, (0, width * ranks - self.count))
        return padded.view(ranks, width)[dist.get_rank()]

    def update(self, gradient: Tensor) -> None:
        """Move this rank's slice along the gradient of all weights, which is the same on every rank."""
        self.shard.grad = self._slice_of(gradient).clone()
        self._optimizer.step()

    def gather_into(self, model: nn.Module) -> int:
        """Collect the slices of all ranks and write them into `model`. Collective. Returns: bytes moved into it."""
        mine = self.shard.detach()
        slices = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(slices, mine)
        weights = torch.cat(slices)[: self.count]
        vector_to_parameters(weights, model.parameters())
        return weights.numel() * weights.element_size()


def mean_gradient(parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    """The gradient's mean over all ranks as one vector, its norm cut to `limit`. Collective."""
    gradient = parameters_to_vector([p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters])
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()
    norm = float(gradient.norm())
    return gradient * min(1.0, limit / (norm + 1e-6))
