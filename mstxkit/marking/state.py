"""The switchboard of generated wrappers: the functions of the engine that they hold, and what makes a site.

All say that this is their module. So cloudpickle, which ships a wrapper of `__main__` by value, ships them by name, and
the worker that unpickles it gets those of its own engine. Written by `ranges.py` at import, once; the switch itself
is inside the engine, so that no toggle is visible to torch.compile.
"""

from __future__ import annotations

from typing import Any, Callable

# Those that a wrapper holds.
HELD = "is_on", "timed", "driven", "opened", "stored", "step", "current_stage"
is_on: Callable[[object], bool]
timed: Callable[..., Any]
driven: Callable[..., Any]
opened: Callable[..., Any]
stored: Callable[..., Any]
step: Callable[..., Any]
current_stage: Callable[[], Any]
recording: Callable[[], bool]
add_cost: Callable[..., None]
# A pickled call site arrives as a call of this; `ranges.site`.
site: Callable[..., Any]
