"""What a run says of the targets of its processes: looked at while it is captured, and when that ends."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mstxkit.bootstrap import patch_record
from mstxkit.patching import registry

PROGRAM = """
import sys, threading, time
import mstxkit
sys.path.insert(0, sys.argv[2])
with mstxkit.capture(sys.argv[1]):
    mstxkit.autopatch(targets=["optimizing:Optimizer.step", "optimizing:Optimizer.zero", "optimizing:load"])
    import optimizing
    for step in range(5):
        mstxkit.step(step)
        optimizing.Optimizer().step()
    {then}
"""
OPTIMIZING = "class Optimizer:\n    def step(self): pass\n    def zero(self): pass\ndef load(): pass\n"


def ran(folder: Path, then: str = "pass") -> Path:
    (folder / "optimizing.py").write_text(OPTIMIZING)
    program = textwrap.dedent(PROGRAM).replace("{then}", then)
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder / "run"), str(folder)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


def said_by(verb: str, run: Path) -> str:
    command = [sys.executable, "-m", "mstxkit", verb, str(run)]
    return " ".join(subprocess.run(command, capture_output=True, text=True, timeout=120).stdout.split())


def test_a_run_says_how_often_each_target_was_called_and_which_never_was(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    from mstxkit import open_run

    run = ran(tmp_path)

    rows = {row["path"]: row for row in open_run(run).patches().to_dicts()}
    assert {path.partition(":")[2]: (row["state"], row["calls"]) for path, row in rows.items()} == {
        "Optimizer.step": ("applied", 5), "Optimizer.zero": ("applied", 0), "load": ("applied", 0),
    }  # fmt: skip
    words = "in place and called 5 times; in place, never called: Optimizer.zero, load"
    assert words in said_by("status", run)
    assert words in said_by("report", run)


def test_what_was_replaced_before_the_end_is_told_by_status_and_report(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    run = ran(tmp_path, "optimizing.Optimizer.step = lambda self: 1")

    words = "optimizing:Optimizer.step: replaced since by <lambda> of __main__"
    assert words in said_by("status", run)
    assert words in said_by("report", run)


def test_a_thread_of_ours_makes_a_range_of_what_somebody_has_put_there(tmp_path: Path) -> None:
    """As MindSpeed's patches do once all is imported: from then on no optimizer would be in the run."""
    pytest.importorskip("polars")
    from mstxkit import open_run

    then = """optimizing.Optimizer.step = theirs = lambda self: 1
    for _ in range(600):
        optimizing.Optimizer().step()
        if optimizing.Optimizer.step is not theirs:
            optimizing.Optimizer().step()
            break
        time.sleep(0.1)"""

    opened = open_run(ran(tmp_path, then))

    names = opened.ranges()["name"].to_list()
    assert names.count("Optimizer.step") >= 6
    state = next(row for row in opened.patches().to_dicts() if row["path"].endswith("step"))
    assert (state["state"], state["detail"]) == ("applied", "around what was put there by <lambda> of __main__")


def test_it_is_looked_in_ever_longer_intervals_up_to_a_minute_however_rarely_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[float] = []
    monkeypatch.setattr(patch_record, "_due_s", 0.0)
    monkeypatch.setattr(patch_record, "_rest_s", 1.0)
    for now_s in (*range(100, 300), 900, 930, 960):
        monkeypatch.setattr(patch_record.time, "monotonic", lambda now_s=now_s: float(now_s))
        monkeypatch.setattr(registry, "look_at_targets", lambda mends, now_s=now_s: looked.append(now_s - 100))
        patch_record.look_at_patches()

    assert looked == [0, 1, 3, 7, 15, 31, 63, 123, 183, 800, 860]
