"""The switchboard that generated wrappers read: `state.timed(site)` and its kin.

A wrapper refers to this module, never to a value in it, so that cloudpickle ships it by reference and the worker that
unpickles it gets its own engine. Written by `ranges.py` at import, once; the switch itself is inside the engine, so
that no toggle is visible to torch.compile.
"""

from __future__ import annotations

from typing import Any, Callable

timed: Callable[..., Any]
driven: Callable[..., Any]
opened: Callable[..., Any]
