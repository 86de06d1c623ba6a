"""What others cost for the same empty range, off and on, beside mstxkit. No budgets: a table to know where one stands.

torch_npu has its own file, since it needs the stand-in libraries. A peer that is not installed is left out.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Callable

from .harness import NATIVE, TSC, Rounds, Row
from .recording import recording

VARIANTS = {"off": NATIVE, "on": {**NATIVE, **TSC}}
AT_MOST = 20_000


def measure(variant: str) -> list[Row]:
    """In units of `with` over a C object that does nothing."""
    from mstxkit import mstx_range

    rounds = Rounds(rounds=31)
    names = {"mstx_range": mstx_range}
    with ExitStack() as stack:
        if variant == "on":
            session = stack.enter_context(recording(native=True, clock="tsc"))
            case = rounds.add("mstxkit", 'with mstx_range("x"): pass', names, after=session.drain, at_most=AT_MOST)
        else:
            rounds.add("mstxkit", 'with mstx_range("x"): pass', names)
        for add in PEERS[variant]:
            _add_if_installed(add, rounds)
        rounds.run()
        if variant == "on":
            session.expect({"x": case.done})
    peers = [name for name in rounds.cases if name not in ("empty loop", "reference")]
    return [rounds.row(f"peers.{variant}.{name}", name) for name in peers]


def _add_if_installed(add: Callable[[Rounds], None], rounds: Rounds) -> None:
    try:
        add(rounds)
    except ImportError:
        return


def _nvtx(rounds: Rounds) -> None:
    import nvtx

    rounds.add("nvtx.annotate", 'with annotate("x"): pass', {"annotate": nvtx.annotate})
    rounds.add("nvtx.annotate prebuilt", "with o: pass", {"o": nvtx.annotate("x")})


def _record_function_off(rounds: Rounds) -> None:
    from torch.profiler import record_function

    rounds.add("torch record_function", 'with r("x"): pass', {"r": record_function}, at_most=2_000)


def _record_function_on(rounds: Rounds) -> None:
    from torch.profiler import ProfilerActivity, profile, record_function

    running: list[Any] = []

    def start() -> None:
        running.append(profile(activities=[ProfilerActivity.CPU]))
        running[-1].start()

    def stop() -> None:
        running.pop().stop()

    names = {"r": record_function}
    rounds.add("torch record_function", 'with r("x"): pass', names, before=start, after=stop, at_most=500)


def _opentelemetry_off(rounds: Rounds) -> None:
    from opentelemetry import trace

    span = trace.NoOpTracer().start_as_current_span
    rounds.add("opentelemetry NoOpTracer", 'with span("x"): pass', {"span": span}, at_most=2_000)


def _opentelemetry_on(rounds: Rounds) -> None:
    from opentelemetry.sdk.trace import TracerProvider

    span = TracerProvider().get_tracer("bench").start_as_current_span
    rounds.add("opentelemetry SDK, no exporter", 'with span("x"): pass', {"span": span}, at_most=1_000)


PEERS: dict[str, tuple[Callable[[Rounds], None], ...]] = {
    "off": (_nvtx, _record_function_off, _opentelemetry_off),
    "on": (_record_function_on, _opentelemetry_on),
}
