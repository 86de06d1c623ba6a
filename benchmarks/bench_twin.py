"""What else than plain ranges costs on the Python twin while recording: attributes, stages, coroutines and generators.

Each is one range, in units of `with` over a C object that does nothing; of bodies, what they cost without us is taken
off.
"""

from __future__ import annotations

import statistics
from typing import Any

from .harness import MONOTONIC, TWIN, Rounds, Row, spread
from .recording import recording

PROCESSES = 3
VARIANTS = {"recording": {**TWIN, **MONOTONIC}}
AT_MOST = 4_000  # ranges a batch, some with four attributes: they fit the free banks

STATEMENTS = {
    "attribute": 'with mstx_range("y", tokens=7): pass',
    "four_attributes": 'with mstx_range("y", tokens=7, ratio=0.5, last=True, who="actor"): pass',
    "text_attribute": 'with mstx_range("y", who="actor"): pass',
    "stage": 'with stage("reward"): pass',
    "coroutine": "run(coroutine())",
    "generator": "for _ in generator(): pass",
}
WITHOUT_US = {"coroutine": "run(bare_coroutine())", "generator": "for _ in bare_generator(): pass"}


def _bodies() -> dict[str, Any]:
    import mstxkit

    async def coroutine() -> None:
        pass

    def generator() -> Any:
        yield

    def run(body: Any) -> None:
        try:
            body.send(None)
        except StopIteration:
            pass

    decorated = mstxkit.mstx_timer("timed")
    return {
        "coroutine": decorated(coroutine), "generator": decorated(generator), "bare_coroutine": coroutine,
        "bare_generator": generator, "run": run, "mstx_range": mstxkit.mstx_range, "stage": mstxkit.stage,
    }  # fmt: skip


def measure(variant: str) -> list[Row]:
    """In units of `with` over a C object that does nothing."""
    with recording(native=False, clock="monotonic") as session:
        rounds = Rounds()
        names = _bodies()
        for name, statement in STATEMENTS.items():
            rounds.add(name, statement, names, after=session.drain, at_most=AT_MOST)
        for name, statement in WITHOUT_US.items():
            rounds.add(f"bare {name}", statement, names)
        rounds.run()
    return [_row(rounds, name) for name in STATEMENTS]


def _row(rounds: Rounds, name: str) -> Row:
    taken, reference = rounds.net(name), rounds.net("reference")
    bare = rounds.net(f"bare {name}") if name in WITHOUT_US else [0.0] * len(taken)
    ratios = [(ns - own) / unit for ns, own, unit in zip(taken, bare, reference)]
    return Row(f"twin.{name}", statistics.median(ratios), "x", spread(ratios))
