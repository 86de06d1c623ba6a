"""Faults inside mstxkit, injected everywhere: the program never sees one, each is counted, and what can be kept is
kept.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from builders import lives

import mstxkit
from mstxkit import faults
from mstxkit.engine.choose import engine
from mstxkit.host import identity, names
from mstxkit.marking import wrapping
from mstxkit.recorder import adopt, blocks, current, live, sealer
from mstxkit.recorder.sealed import SealedFiles
from mstxkit.store import livefile, segment

SMALL = {"bank_bytes": 16384, "banks": 8, "slots": 16}


class Fails:
    """Stands in for a function and raises, for the first so many calls, then does as the real one."""

    def __init__(self, real: Any, times: int = 1 << 30, error: BaseException | None = None) -> None:
        self.real, self.times, self.calls = real, times, 0
        self.error = error or RuntimeError("injected")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return self.real(*args, **kwargs)


def record(count: int) -> None:
    for number in range(count):
        with mstxkit.mstx_range("x", n=number):
            pass


SEALING = {
    "segment.compress": (segment, "compress_stream", RuntimeError("injected")),
    "segment.pack_block": (segment, "pack_block", MemoryError()),
    "blocks.about": (blocks, "describe_process", KeyError("injected")),
    "SealedFiles.append": (SealedFiles, "append", OSError(28, "injected")),
    "os.write": (os, "write", OSError(5, "injected")),
}


@pytest.mark.parametrize("where", SEALING)
def test_sealing_that_fails_for_a_while_loses_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """Its bank is kept and tried again, by the background thread itself."""
    module, name, error = SEALING[where]
    monkeypatch.setattr(sealer, "_TICK_S", 0.02)
    with mstxkit.capture(run, **SMALL):
        failing = Fails(getattr(module, name), times=1, error=error)
        monkeypatch.setattr(module, name, lambda *args, **kwargs: failing(*args, **kwargs))
        record(400)
        assert lives.wait_until(lambda: failing.calls >= 2), "the sealer did not try again by itself"
        status = mstxkit.status()

    assert status.faults == {"sealer.write": 1}
    assert status.counters["faults"] == 1
    assert sum("fault in sealer.write" in message for message in caplog.messages) == 1
    assert [row["attributes"]["n"] for row in lives.ranges(run)] == list(range(400))
    assert [row["dropped"] for row in lives.processes(run)] == [0]


@pytest.mark.parametrize("where", SEALING)
def test_where_nothing_can_be_sealed_at_the_end_the_live_file_stays(
    run: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    module, name, error = SEALING[where]
    started = mstxkit.capture(run, **SMALL)
    record(100)
    with monkeypatch.context() as patched:
        failing = Fails(getattr(module, name), error=error)
        patched.setattr(module, name, lambda *args, **kwargs: failing(*args, **kwargs))
        started.stop()
    status = mstxkit.status()
    rows = [row["attributes"]["n"] for row in lives.ranges(run)]
    pretend_it_died(run, monkeypatch)
    adopted = adopt.collect_dead(run)

    assert not status.on and status.faults
    assert rows == list(range(100)), "it can be read where it is"
    assert [one.records for one in adopted] == [100]
    assert [row["attributes"]["n"] for row in lives.ranges(run)] == list(range(100))
    assert [row["state"] for row in lives.processes(run)] == ["ended"]


def pretend_it_died(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = identity.pid_start
    monkeypatch.setattr(identity, "pid_start", lambda pid: real(pid) if pid != os.getpid() else -1)
    assert len(list((run / "live").glob("*.json"))) == 1


def test_banks_that_run_out_cost_ranges_which_are_counted_and_the_fault_is_logged_once(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with mstxkit.capture(run, **SMALL):
        with monkeypatch.context() as patched:
            patched.setattr(segment, "compress_stream", Fails(segment.compress_stream))
            record(10_000)
            for _ in range(5):
                current.recorder.sealer.seal_full_banks()
        dropped = mstxkit.status().counters["dropped"]
        assert current.recorder.sealer.seal_full_banks()
        record(10)

    found = lives.ranges(run)
    assert dropped > 0
    assert faults.counts["sealer.write"] >= 5
    assert sum("fault in sealer.write" in message for message in caplog.messages) == 1
    assert len(found) == 10_000 - dropped + 10
    assert [row["attributes"]["n"] for row in found[-10:]] == list(range(10)), "it goes on once there is room"


def test_sealing_that_keeps_failing_does_not_keep_a_processor_busy(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dropped record wakes the sealer; it must not try again for each."""
    failing = Fails(segment.compress_stream)
    with mstxkit.capture(run, **SMALL):
        with monkeypatch.context() as patched:
            patched.setattr(segment, "compress_stream", failing)
            for _ in range(50):
                record(100)
                threading.Event().wait(0.002)

    assert mstxkit.status().faults
    assert failing.calls <= 20


HOOKS = ("describe", "utf8", "fault")


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("error", [RuntimeError("injected"), MemoryError(), RecursionError()])
def test_a_failing_hook_of_the_hot_path_never_reaches_the_program(run: Path, hook: str, error: BaseException) -> None:
    real = {
        "describe": names.describe_site,
        "utf8": names.utf8,
        "fault": faults.note_fault,
        "decorate": wrapping.decorate_target,
    }
    with mstxkit.capture(run, **SMALL):
        engine.set_hooks(*{**real, hook: Fails(real[hook], error=error)}.values())
        try:
            with mstxkit.mstx_range(f"new name {hook} {error!r}", text="value", other=object()):
                mstxkit.mark(f"new mark {hook} {error!r}", text="another value")
                mstxkit.step(-1)
        finally:
            engine.set_hooks(*real.values())
        record(3)

    assert lives.ended(run)["x"] == 3


def test_an_identity_that_cannot_be_written_costs_nothing_but_itself(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mstxkit.capture(run, **SMALL):
        monkeypatch.setattr(livefile, "write_identity", Fails(livefile.write_identity))
        mstxkit.identify(rank=5)
        record(400)

    assert faults.counts["recorder.identity"] >= 1
    assert lives.ended(run) == {"x": 400}


# From Python 3.12 on our threads end before a fork, where it would warn of them.
BEFORE = "ask" if sys.version_info >= (3, 12) else "hold"
FORKING = {
    "before": (f"mstxkit.recorder.background.Background.{BEFORE}", {"x": 2}),
    "in the parent": ("mstxkit.recorder.forking.start_threads", {"x": 2}),
    "in the child": ("mstxkit.recorder.live.make_file", {"x": 1}),
}


@pytest.mark.parametrize("where", FORKING)
def test_a_fault_around_a_fork_never_reaches_the_program(run: Path, where: str) -> None:
    target, expected = FORKING[where]
    lives.run(
        """
        import importlib, os, sys, mstxkit, mstxkit.capturing
        from mstxkit.recorder import current
        from mstxkit.recorder import background, forking, live
        mstxkit.capture(sys.argv[1])
        owner, _, name = sys.argv[2].rpartition(".")
        owner = eval(owner)
        real, failed = getattr(owner, name), []
        def fails(*args, **kwargs):
            if not failed:
                failed.append(1)
                raise RuntimeError("injected")
            return real(*args, **kwargs)
        setattr(owner, name, fails)
        pid = os.fork()
        with mstxkit.mstx_range("x"):
            pass
        if pid:
            assert os.waitpid(pid, 0)[1] == 0
        """,
        run, target, has_faults=True,
    )  # fmt: skip

    found = lives.ended(run)
    assert found["x"] >= 1
    assert expected is None or found == expected


ADOPTING = {
    "livefile.read_header": (livefile, "read_header"),
    "livefile.read_identity": (livefile, "read_identity"),
    "SealedFiles.append": (SealedFiles, "append"),
    "blocks.of_left_banks": (blocks, "of_left_banks"),
    "blocks.of_end": (blocks, "of_end"),
    "live.forget_folder": (live, "forget_folder"),
}


@pytest.mark.parametrize("where", ADOPTING)
def test_an_adoption_that_fails_is_done_by_the_next_one(run: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    lives.leave_dead(run, 1)
    module, name = ADOPTING[where]
    failing = Fails(getattr(module, name), times=1, error=OSError(5, "injected"))
    monkeypatch.setattr(module, name, lambda *args, **kwargs: failing(*args, **kwargs))
    first, second = adopt.collect_dead(run), adopt.collect_dead(run)

    assert failing.calls >= 1
    assert not first
    assert lives.ended(run) == {"ended": 1}
    assert lives.still_open(run) == {"open": 1}
    assert [row["state"] for row in lives.processes(run)] == ["killed"]
    assert second or where == "live.forget_folder"
    assert not lives.damage(run)
    assert faults.counts == {"adopt": 1}
    assert not list((run / "live").iterdir())


def test_a_logger_that_raises_does_not_reach_the_program(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("a broken handler")

    handler = Broken()
    monkeypatch.setattr(sealer, "_TICK_S", 0.02)
    logging.getLogger("mstxkit").addHandler(handler)
    try:
        with mstxkit.capture(run, **SMALL):
            with monkeypatch.context() as patched:
                failing = Fails(segment.compress_stream)
                patched.setattr(segment, "compress_stream", failing)
                record(400)
                mstxkit.step(-1)
                assert lives.wait_until(lambda: failing.calls >= 2), "the sealer has not survived it"
            record(1)
    finally:
        logging.getLogger("mstxkit").removeHandler(handler)

    assert lives.ended(run) == {"x": 401}
