"""The public signature of `configure`, pinned: `tests/test_typing.py` has mypy check this file, nothing runs it."""

from __future__ import annotations

from typing import Optional

from typing_extensions import assert_type

from mstxkit import configure
from mstxkit.config.model import Config, Window

config = configure("run.yaml", "verl", total_steps=100, world_size=8)
assert_type(config, Config)
assert_type(configure({"mstxkit": {"enabled": True}}).window, Window)
assert_type(config.window.last_step, Optional[int])
configure()  # type: ignore[call-arg]
configure("run.yaml", 5)  # type: ignore[arg-type]
