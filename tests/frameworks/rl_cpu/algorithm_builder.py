"""MindSpeed's operator that lets two tensors share memory: C++ for an NPU, always asked for, used by an option."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class AlgorithmOpBuilder:
    def load(self) -> Any:
        return SimpleNamespace(reuse_data_ptr=None)
