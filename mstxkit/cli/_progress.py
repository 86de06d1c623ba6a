"""A bar on standard error while something long goes on; in a pipe, in a file and on a dumb terminal nothing at all."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import Callable, Iterator

Advance = Callable[[float], None]
_DRAWN_EVERY_S = 0.1


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Advance]:
    """Show how far `what` has come while the body runs; the bar is gone when it ends, however that is.

    `with progress("Exporting", total=rows) as advance: advance(1000)` says that a thousand more are done: as often as
    you like, from any one thread; it never raises. `what` is plain text; `total` is None where nobody knows.
    """
    try:
        is_seen = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    except ValueError:  # a closed stream
        is_seen = False
    if not is_seen:
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    how_far = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) if total else (SpinnerColumn(),)
    columns = (TextColumn("{task.description}", markup=False), *how_far)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total or None)
        waiting, drawn_at = 0.0, time.monotonic()

        def advance(amount: float) -> None:
            nonlocal waiting, drawn_at
            waiting += amount
            now = time.monotonic()
            if now - drawn_at >= _DRAWN_EVERY_S:
                bar.advance(task, waiting)
                waiting, drawn_at = 0.0, now

        yield advance
