"""The loop of tests/builders/ddp_rank.py for `traceml run`: a real DataLoader, and one rank slow in one place.

`KIND`: none, input, forward, backward, optimizer or link (by LD_PRELOAD, from the start); `STEPS`, `BASE_MS`.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist
import traceml_ai as traceml
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

KIND, STEPS, BASE_S = os.environ["KIND"], int(os.environ["STEPS"]), float(os.environ["BASE_MS"]) / 1000
LATE_S = 0.02


def at(place: str) -> None:
    """Wait as for a device, and longer where the fault is."""
    time.sleep(BASE_S + LATE_S * (place == KIND and dist.get_rank() == 1))


class Items(Dataset[torch.Tensor]):
    """Batches that take a while to load."""

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        at("input")
        return torch.randn(32, 128)


class SlowBackward(torch.autograd.Function):
    """The identity, with the fault in its gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """The same."""
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """The same, later."""
        at("backward")
        return gradient


class Model(nn.Module):
    """A few layers, with the fault behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(128, 128) for _ in range(4)])

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Compute, then wait."""
        output = self.layers(batch)
        at("forward")
        slow: torch.Tensor = SlowBackward.apply(output)
        return slow


class SlowSgd(torch.optim.SGD):
    """SGD with the fault in it."""

    def step(self, closure: Any = None) -> Any:
        """Wait, then step."""
        at("optimizer")
        return super().step(closure)


def main() -> None:
    """Train."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    traceml.init(mode="auto")
    model = DistributedDataParallel(Model())
    optimizer = SlowSgd(model.parameters(), 1e-3)
    for batch in DataLoader(Items(), batch_size=None):
        with traceml.trace_step(model):
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
    dist.destroy_process_group()


main()
