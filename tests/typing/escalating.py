"""The public signature of `escalate`, pinned: `tests/test_typing.py` has mypy check this file, nothing runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from typing_extensions import assert_type

from mstxkit import escalate
from mstxkit.store.request import Request

request = escalate("actor_update", ranks="all", steps=2, preset="kernels", reason="slow")
assert_type(request, Request)
assert_type(request.id, str)
assert_type(request.steps, Optional[int])
escalate(["reward", "actor_update"], ranks=[0, 3], occurrences=2, run=Path("runs/exp7"), limit_s=5, limit_bytes=1 << 30)
escalate("actor_update", sample={"per": "micro_batch", "skip": 2, "record": 1}, ranks=3)
escalate()  # type: ignore[call-arg]
escalate("actor_update", "all")  # type: ignore[call-arg]
escalate("actor_update", steps="2")  # type: ignore[arg-type]
escalate("actor_update", ranks="suspect+peer", options={"level": 1, "activities": ["npu"], "memory": True})
escalate("any stage of theirs", ranks="dp:3,host:node7")
escalate("actor_update", preset="ful")  # type: ignore[arg-type]
escalate("actor_update", options={"levle": 1})  # type: ignore[arg-type]
escalate("actor_update", options={"level": "level9"})  # type: ignore[arg-type]
escalate("actor_update", sample={"per": "batch"})  # type: ignore[arg-type]
escalate("actor_update", sample={"skip": 2})  # type: ignore[arg-type]
