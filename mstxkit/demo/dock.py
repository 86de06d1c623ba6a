"""The transfer dock: a table of experience, one row per response, through which the stages hand columns to each other.

It follows MindSpeed-RL's transfer dock: a producer puts columns, a consumer asks by its own name for rows that are
ready in all the columns it needs, and gets each row once. Here it lives inside one rank; there it is an actor.
"""

from __future__ import annotations

from typing import Mapping, Sequence

import torch
from torch import Tensor


class TransferDock:
    """The rows of experience of one training step."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._columns: dict[str, Tensor] = {}
        self._ready: dict[str, Tensor] = {}
        self._consumed: dict[str, Tensor] = {}

    def put_experience(self, columns: Mapping[str, Tensor], indexes: Tensor) -> None:
        """Copy rows into the dock. `indexes[i]` is the dock's row of row i of every column."""
        for name, values in columns.items():
            if name not in self._columns:
                self._columns[name] = torch.zeros(self._rows, *values.shape[1:], dtype=values.dtype)
                self._ready[name] = torch.zeros(self._rows, dtype=torch.bool)
            self._columns[name][indexes] = values.detach()
            self._ready[name][indexes] = True

    def get_experience(
        self, consumer: str, names: Sequence[str], count: int | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Copies of up to `count` rows (default: all) that are ready and that this consumer has not had yet.

        Returns: the columns, and the dock's index of each row; both empty when nothing is left.
        Raises: KeyError when nobody has put one of the columns.
        """
        waiting = ~self._consumed.setdefault(consumer, torch.zeros(self._rows, dtype=torch.bool))
        for name in names:
            waiting = waiting & self._ready[name]
        indexes = waiting.nonzero().squeeze(1)[:count]
        self._consumed[consumer][indexes] = True
        return {name: self._columns[name][indexes] for name in names}, indexes
