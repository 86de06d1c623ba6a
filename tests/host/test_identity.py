"""Who a process is: read from its launcher, learnt late, kept once known."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest
from builders import lives

import mstxkit
from mstxkit import faults
from mstxkit.host import identity
from mstxkit.recorder import adopt, current
from mstxkit.store import livefile

LAUNCHERS = {
    "torchrun": ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
    "Open MPI": ({"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "16"}, (4, 16)),
    "Slurm": ({"SLURM_PROCID": "5", "SLURM_NTASKS": "32"}, (5, 32)),
    "msrun": ({"RANK_ID": "6", "RANK_SIZE": "64"}, (6, 64)),
    "torchrun under Slurm": ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (1, 2)),
    "nobody": ({}, (None, None)),
    "nonsense": ({"RANK": "one", "WORLD_SIZE": "-1"}, (None, None)),
    "numbers without end": ({"RANK": "9" * 400}, (None, None)),
    "digits of another script": ({"RANK": "²"}, (None, None)),
}
VARIABLES = {*identity._RANK_VARIABLES, *identity._WORLD_VARIABLES, *identity._REPLICA_VARIABLES, "MSTXKIT_ROLE"}
TRAINER = {"part": "trainer", "under": ""}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No launcher, no torch: whatever this suite is run under."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    yield
    identity.forget_learnt()


def group_of(rank: Any, world_size: Any, is_initialized: bool = True) -> SimpleNamespace:
    """What torch.distributed looks like with a process group."""
    return SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: is_initialized,
        get_rank=lambda: rank, get_world_size=lambda: world_size,
    )  # fmt: skip


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_rank_and_world_size_are_the_launchers(monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    variables, expected = LAUNCHERS[launcher]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = identity.read_current()

    assert (found["rank"], found["world_size"]) == expected


def test_an_initialised_process_group_knows_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setitem(sys.modules, "torch.distributed", group_of(7, 8))

    assert identity.read_current() == {
        "rank": 7,
        "world_size": 8,
        "role": None,
        **TRAINER,
        "versions": identity.versions_loaded(),
    }


@pytest.mark.parametrize("group", [group_of(7, 8, is_initialized=False), group_of(-1, -1)])
def test_a_group_that_does_not_know_is_not_asked(monkeypatch: pytest.MonkeyPatch, group: Any) -> None:
    """torch gives -1 to a process that is in no group."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setitem(sys.modules, "torch.distributed", group)

    assert identity.read_current()["rank"] == 0


def test_a_group_that_raises_is_a_counted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(is_initialized=lambda: 1 / 0))
    monkeypatch.setenv("RANK", "0")
    found = identity.read_current()

    assert found["rank"] == 0
    assert faults.counts == {"identity.torch_distributed": 1}


def test_what_identify_says_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("MSTXKIT_ROLE", "from outside")
    mstxkit.identify(rank=5, world_size=9)
    mstxkit.identify(role="actor")

    assert identity.read_current() == {
        "rank": 5,
        "world_size": 9,
        "role": "actor",
        **TRAINER,
        "versions": identity.versions_loaded(),
    }


def test_a_part_may_be_said_and_comes_first() -> None:
    mstxkit.identify(part="tokenizer 2")

    assert identity.read_current()["part"] == "tokenizer 2"


def test_the_role_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_ROLE", "reference")

    assert identity.read_current()["role"] == "reference"


@pytest.mark.parametrize("rank", ["3", 1.5, object()])
def test_what_is_no_rank_is_a_counted_fault_and_ignored(rank: Any) -> None:
    mstxkit.identify(rank=2)
    mstxkit.identify(rank=rank)

    assert identity.read_current()["rank"] == 2
    assert faults.counts == {"identify": 1}


def test_a_rank_of_another_int_type_is_an_int() -> None:
    class Scalar:
        def __index__(self) -> int:
            return 4

    mstxkit.identify(rank=Scalar())

    assert type(identity.read_current()["rank"]) is int


@pytest.mark.parametrize("part", ["\U0001f600", "x", "\0"])
def test_a_part_of_any_length_leaves_room_for_the_role(run: Path, part: str) -> None:
    mstxkit.identify(role="\U0001f600" * 50, part=part * 10_000)
    with mstxkit.capture(run), mstxkit.mstx_range("x"):
        pass

    assert [(row["role"], set(row["part"])) for row in lives.processes(run)] == [("\U0001f600" * 50, {part})]


def test_a_role_of_any_length_leaves_a_readable_identity(run: Path) -> None:
    mstxkit.identify(role="\U0001f600" * 10_000, part="\U0001f600" * 10_000)
    with mstxkit.capture(run), mstxkit.mstx_range("x"):
        view = current.live_view()
        assert view is not None
        role = livefile.read_identity(view)["role"]

    assert role == "\U0001f600" * identity.ROLE_LIMIT
    assert [row["role"] for row in lives.ranges(run)] == [role]


def test_a_rank_that_is_learnt_late_holds_for_all_ranges_of_the_process(run: Path) -> None:
    with mstxkit.capture(run, bank_bytes=16384):
        for _ in range(1000):
            with mstxkit.mstx_range("before"):
                pass
        current.recorder.sealer.seal_full_banks()
        mstxkit.identify(rank=11, role="actor", world_size=12)
        with mstxkit.mstx_range("after"):
            pass

    rows = lives.ranges(run)
    assert {(row["rank"], row["role"]) for row in rows} == {(11, "actor")}
    assert [row["world_size"] for row in lives.processes(run)] == [12]
    assert len(rows) == 1001


def test_a_rank_survives_a_kill_in_the_next_moment(run: Path) -> None:
    lives.run(
        """
        import os, sys, mstxkit
        mstxkit.capture(sys.argv[1])
        with mstxkit.mstx_range("x"):
            pass
        mstxkit.identify(rank=3)
        os._exit(0)
        """,
        run,
    )
    before = [row["rank"] for row in lives.ranges(run)]
    adopt.collect_dead(run)

    assert before == [3]
    assert [row["rank"] for row in lives.ranges(run)] == [3]


def test_a_process_group_is_noticed_while_recording_and_remembered_after_its_end(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs destroy their group before they end."""
    from mstxkit.recorder import sealer

    monkeypatch.setattr(sealer, "_TICK_S", 0.01)
    with mstxkit.capture(run):
        with mstxkit.mstx_range("x"):
            pass
        view = current.live_view()
        assert view is not None
        monkeypatch.setitem(sys.modules, "torch.distributed", group_of(6, 8))
        assert lives.wait_until(lambda: livefile.read_identity(view)["rank"] == 6)
        monkeypatch.setitem(sys.modules, "torch.distributed", None)

    assert [(row["rank"], row["world_size"]) for row in lives.processes(run)] == [(6, 8)]


def test_a_process_is_told_apart_from_any_other() -> None:
    first, second = (identity.of_process("a" * 32, True, "1") for _ in range(2))

    assert identity.process_name(first) != identity.process_name(second)
    assert (first["pid"], first["host"]) == (os.getpid(), identity.name_host())


def test_a_host_name_is_fit_for_a_file_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="../a-b c" + "x" * 100))

    assert identity.name_host() == (".._a_b_c" + "x" * 100)[:64]
