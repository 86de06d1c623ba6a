"""A kill in the middle of something, without a process: after so many calls of one step nothing more happens."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator

import pytest


@contextmanager
def cut_short(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, count: int) -> Iterator[None]:
    """Inside of this the call of `owner.name` after the first `count` raises KeyboardInterrupt, and all later ones."""
    step, calls = getattr(owner, name), []

    def cut(*args: Any, **kwargs: Any) -> Any:
        if len(calls) == count:
            raise KeyboardInterrupt
        calls.append(1)
        return step(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, cut)
        yield
