"""The examples of docs/guide/testing.md run as they stand there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "testing.md"


def example(name: str) -> Any:
    """The function of that name, from the page's Python blocks."""
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), namespace)
    return namespace[name]


@pytest.mark.parametrize("name", ["test_scoring_is_part_of_the_reward_stage", "test_the_wait_is_counted"])
def test_an_example_of_captured_holds(name: str) -> None:
    example(name)()


def test_the_example_of_data_of_your_own_holds() -> None:
    pytest.importorskip("numpy")
    example("test_who_is_slow_is_named")()


@pytest.mark.npu
@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="needs torch_npu")
def test_the_example_of_the_real_torch_npu_holds(tmp_path: Path) -> None:
    example("test_decode_is_in_the_device_profile")(tmp_path)
