"""A recording to time: capture into a throwaway run, banks drained between batches, all ranges read back at the end."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Mapping

STAGE, STEP, HELD = "actor_update", 3, "held open"
DRAIN_WITHIN_S = 30.0
# The counter of aarch64 plays the part of the TSC there.
CLOCKS = {1: "monotonic", 2: "tsc", 3: "tsc", 4: "fake"}


class Recording:
    """A capture under way. `drain` goes between batches, outside the timed part."""

    def __init__(self, run: Path) -> None:
        from mstxkit.engine.choose import engine

        self.run, self.engine = run, engine
        self.expected: Mapping[str, int] = {}

    def drain(self) -> None:
        """Return once the sealer has taken every full bank, so that the next batch finds free ones."""
        deadline = time.monotonic() + DRAIN_WITHIN_S
        while self.engine.full_bank() >= 0:
            assert time.monotonic() < deadline, "the sealer does not keep up"
            time.sleep(0.0002)

    def expect(self, counts: Mapping[str, int]) -> None:
        """How many ranges of which name must read back once the capture has ended."""
        self.expected = dict(counts)


@contextmanager
def recording(native: bool, clock: str = "") -> Iterator[Recording]:
    """Capture on the engine and clock asked for, at a step and inside a stage, and check all of it at the end."""
    from mstxkit import capture, stage, step

    folder = Path(tempfile.mkdtemp(prefix="mstxkit-bench-"))
    try:
        with capture(folder / "run", budget_ratio=0) as captured:  # a storm, on purpose
            session = Recording(Path(captured.run))
            assert bool(session.engine.NATIVE) is native, "not the engine asked for"
            assert not clock or CLOCKS[session.engine.clock_kind()] == clock, "not the clock asked for"
            step(STEP)
            with stage(STAGE):
                _check_slot(session)
                yield session
            counters = session.engine.counters()
        assert not counters["dropped"] and not counters["slots_overflowed"], counters
        _check_read_back(session)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_slot(session: Recording) -> None:
    """A range that is open can be seen from outside."""
    from mstxkit import mstx_range, open_run

    with mstx_range(HELD):
        rows = open_run(session.run).ranges()
        names = rows.filter(rows["open"])["name"].to_list()
    assert HELD in names, f"the open range is in no slot; open are {names}"


def _check_read_back(session: Recording) -> None:
    """Every range has its row, with step, stage and track."""
    from mstxkit import open_run

    run = open_run(session.run)
    rows = run.ranges()
    assert not run.damage, run.damage
    assert not run.processes()["dropped"].sum()
    for name, count in session.expected.items():
        found = rows.filter((rows["name"] == name) & ~rows["open"])
        assert found.height == count, f"{count} ranges {name!r} were recorded, {found.height} read back"
        assert found["track"].null_count() == 0
        assert found["step"].unique().to_list() == [STEP]
        assert found["stage"].cast(str).unique().to_list() == [STAGE]
