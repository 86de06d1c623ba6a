"""A run folder that answers nothing, as on a dead NFS: training does not wait for it, its end only so long."""

from __future__ import annotations

from pathlib import Path

from builders import lives

import mstxkit
from mstxkit.recorder import adopt

# Far beyond what is promised, far below what a hang is: the machine may be busy.
BUSY_S = 5.0
FREEZES = """
    import os, subprocess, sys, threading, time, mstxkit
    run = sys.argv[1]
    disk = os.path.dirname(run)
    def freeze():
        subprocess.run(["fsfreeze", "-f", disk], check=True)
    def thaw_in(seconds):
        thaw = f"sleep {seconds}; fsfreeze -u {disk}"
        subprocess.Popen(["sh", "-c", thaw], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
ON_DUTY = (
    FREEZES
    + """
    def train(steps):
        worst = 0.0
        for _ in range(steps):
            began = time.monotonic()
            mstxkit.step()
            with mstxkit.stage("actor_update"): pass
            worst = max(worst, time.monotonic() - began)
            time.sleep(0.01)
        return worst
    mstxkit.capture(run, cooldown_s=0, poll_every_s=0.05)
    acks = os.path.join(run, "control", "acks")
    while not os.path.isdir(acks) or not os.listdir(acks):
        train(10)
    request = mstxkit.escalate("actor_update", ranks=[0], steps=1, preset="full")
"""
)


def test_a_stage_with_a_request_waiting_goes_on_and_the_request_has_failed(frozen_disk: Path) -> None:
    """What begins is written down before it begins: where that cannot be, nothing begins."""
    run = frozen_disk / "run"
    done = lives.run(
        ON_DUTY
        + """
    from mstxkit import capturing
    while not hasattr(duty := capturing._beside.standby._guard, "_machine"): time.sleep(0.001)
    while duty._machine.phase(time_now()) != "armed": time.sleep(0.001)
    subprocess.run(["fsfreeze", "-f", disk], check=True)
    worst, phases = 0.0, set()
    while duty._machine.has_work:
        worst = max(worst, train(1))
        phases.add(duty._machine.phase(time_now()))
    subprocess.run(["fsfreeze", "-u", disk], check=True)
    mstxkit.capturing.stop_recording()
    print(worst, *sorted(phases))
    """.replace("time_now()", "mstxkit.escalation.machine.moves.Now(time.time_ns(), time.monotonic_ns())"),
        run,
    )
    worst, *phases = done.split()

    assert float(worst) < BUSY_S / 2
    assert phases[:1] == ["armed"] and "running" not in phases, "it is tried again for two seconds, and never begun"
    (row,) = mstxkit.open_run(run).escalations().to_dicts()
    assert row["state"] == "failed"
    assert "its beginning could not be written down" in row["reason"]
    assert "has not answered for 2 s" in row["reason"]


def test_a_module_that_is_imported_does_not_wait_for_the_record_of_what_was_patched(frozen_disk: Path) -> None:
    run = frozen_disk / "run"
    (frozen_disk / "late.py").write_text("def work(): pass")
    (frozen_disk / "targets.yaml").write_text("framework: late\ntargets:\n  - {path: 'late:work', stage: work}\n")
    waited = lives.run(
        FREEZES
        + """
    sys.path.insert(0, disk)
    sys.dont_write_bytecode = True  # Python would wait for the disk itself
    mstxkit.capture(run)
    mstxkit.autopatch(targets=f"{disk}/targets.yaml")
    freeze()
    thaw_in(4)
    began = time.monotonic()
    import late
    print(time.monotonic() - began)
    time.sleep(6)
    """,
        run,
    )

    assert float(waited) < 3
    assert [row["state"] for row in mstxkit.open_run(run).patches().to_dicts() if row["path"] == "late:work"] == [
        "applied"
    ]


def test_the_end_waits_two_seconds_and_what_it_could_not_seal_is_sealed_later(frozen_disk: Path) -> None:
    run = frozen_disk / "run"
    done = lives.run(
        FREEZES
        + """
    mstxkit.capture(run, bank_bytes=16 << 10, banks=4)
    def record(count):
        for _ in range(count):
            with mstxkit.mstx_range("r"): pass
    record(500)
    freeze()
    record(500)
    began = time.monotonic()
    mstxkit.capturing.stop_recording()
    print(time.monotonic() - began)
    began = time.monotonic()
    with mstxkit.mstx_range("unrecorded"): pass
    print(time.monotonic() - began)
    thaw_in(0.5)  # the process is at its end by then, and does not go on
    """,
        run,
    )
    stopped, marked = map(float, done.split())

    assert 1.9 < stopped < 2 + BUSY_S
    assert marked < BUSY_S
    adopt.collect_dead(run)
    assert lives.ended(run) == {"r": 1000}
    assert [row["state"] for row in lives.processes(run)] == ["ended"]
    assert not lives.damage(run)


def test_how_long_the_end_waits_can_be_set(frozen_disk: Path) -> None:
    done = lives.run(
        FREEZES
        + """
    mstxkit.capture(run, stop_s=0.1)
    with mstxkit.mstx_range("r"): pass
    freeze()
    began = time.monotonic()
    mstxkit.capturing.stop_recording()
    print(time.monotonic() - began)
    thaw_in(0.5)
    """,
        frozen_disk / "run",
    )

    assert float(done) < 2
    adopt.collect_dead(frozen_disk / "run")
    assert lives.ended(frozen_disk / "run") == {"r": 1}


def test_what_is_captured_next_has_nothing_to_do_with_what_still_hangs(frozen_disk: Path, tmp_path: Path) -> None:
    """The write that hung returns while another run is recorded: none of its banks is taken for the old one's."""
    other = tmp_path / "other"
    lives.run(
        FREEZES
        + """
    def record(name, count):
        for _ in range(count):
            with mstxkit.mstx_range(name): pass
    mstxkit.capture(run, bank_bytes=16 << 10, banks=4, stop_s=0.2)
    freeze()
    record("old", 1500)
    time.sleep(0.2)
    mstxkit.capturing.stop_recording()
    mstxkit.capture(sys.argv[2], bank_bytes=256 << 10, banks=4, seal_every_s=0.05)  # room for a sealer that is late
    for number in range(100):
        if number == 25:
            thaw_in(0)
        record("new", 100)
        time.sleep(0.02)
    mstxkit.capturing.stop_recording()
    """,
        frozen_disk / "run",
        other,
    )
    adopt.collect_dead(frozen_disk / "run")

    assert lives.ended(frozen_disk / "run") == {"old": 1500}
    assert lives.ended(other) == {"new": 10_000}
    assert [row["dropped"] for row in lives.processes(other)] == [0]
    assert not lives.damage(other)
    assert not lives.damage(frozen_disk / "run")
