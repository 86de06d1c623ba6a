"""What the stages and pieces of a block are, as whoever decides on sessions is told them by the engine's hooks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator

from mstxkit import faults
from mstxkit.engine.choose import engine
from mstxkit.pieces import edges


@contextmanager
def watched(sample_per: str | None = None) -> Iterator[list[str]]:
    """Edges in order: `+name` where a stage or piece begins, `-name` where it ends. A fault in a hook is raised.

    Args:
        sample_per: What the request that is active samples by.
    """
    seen: list[str] = []

    def tell(told: tuple[edges.Edge, ...]) -> None:
        seen.extend(("+" if edge.begins else "-") + edge.key for edge in told)

    def entered(site: Any, may_move: bool) -> None:
        tell(edges.enter_call(site, may_move, sample_per))

    def left(site: Any, failed: bool) -> None:
        tell(edges.leave_call(site, failed))

    faults.reraise, before = True, faults.reraise
    edges.forget_open()
    engine.set_watch(entered, left, None)
    engine.watch(True)
    try:
        yield seen
    finally:
        engine.watch(False)
        engine.set_watch(None, None, None)
        edges.forget_open()
        faults.reraise = before
