"""Where MindSpeed-LLM asks for `transfer_to_npu`, by which CUDA's calls become an NPU's, it gets `transfer_to_cpu`."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any


class Finder:
    """Finds one module."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch_npu.contrib.transfer_to_npu":
            return None
        return importlib.util.spec_from_file_location(name, Path(__file__).with_name("transfer_to_cpu.py"))


sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
