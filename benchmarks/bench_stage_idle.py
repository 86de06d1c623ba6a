"""A stage while recording, with watch hooks set and nothing armed: what that adds to the same stage without them.

Nobody watches then, so they are not called. Beside it, without a budget: the whole stage, and one that is watched by
hooks in Python that do nothing. On the twin a stage takes so long that a difference is told in units of the stage.
"""

from __future__ import annotations

from typing import Any, Callable

from .harness import MONOTONIC, NATIVE, REFERENCE, TSC, TWIN, Rounds, Row
from .recording import STAGE, Recording, recording

PROCESSES = 3
VARIANTS = {"native_tsc": {**NATIVE, **TSC}, "twin": {**TWIN, **MONOTONIC}}
AT_MOST = 20_000


def measure(variant: str) -> list[Row]:
    """In units of `with` over a C object that does nothing; the budgeted one over the stage without hooks."""
    engine, _, clock = variant.partition("_")
    with recording(native=engine == "native", clock=clock) as session:
        rounds = Rounds()
        _add(rounds, session, "plain", lambda: None)
        _add(rounds, session, "idle", lambda: _set_hooks(session.engine, False))
        _add(rounds, session, "watched", lambda: _set_hooks(session.engine, True))
        rounds.run()
        session.expect({name: rounds.cases[name].done for name in ("plain", "idle", "watched")})
    return [
        rounds.row(f"stage_idle.{variant}", "idle", over="plain", unit=REFERENCE if clock == "tsc" else "plain"),
        rounds.row(f"stage_idle.{variant}_whole", "idle"),
        rounds.row(f"stage_idle.{variant}_watched", "watched"),
    ]


def _add(rounds: Rounds, session: Recording, name: str, before: Callable[[], object]) -> None:
    """A case under its own name: one statement, whatever is set around it."""
    from mstxkit import mstx_range

    def after() -> None:
        session.engine.watch(False)
        session.engine.set_watch(None, None, None)
        session.drain()

    statement = f'with mstx_range("{name}", stage="{STAGE}"): pass'
    rounds.add(name, statement, {"mstx_range": mstx_range}, before=before, after=after, at_most=AT_MOST)


def _set_hooks(engine: Any, on: bool) -> None:
    engine.set_watch(lambda site, may_move: None, lambda site, failed: None, lambda step: None)
    engine.watch(on)
