"""Which clock is chosen, and what is said about it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from mstxkit.host import clock

FLAGS = "processor : 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\n"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MachineSetter:
    monkeypatch.delenv("MSTXKIT_CLOCK", raising=False)
    return MachineSetter(monkeypatch, tmp_path)


class MachineSetter:
    """Makes the clock module believe in another machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch, self._folder = monkeypatch, folder

    def __call__(self, architecture: str, source: str = "tsc", cpuinfo: str = FLAGS) -> None:
        files = {"_CLOCKSOURCE": source + "\n", "_CPUINFO": cpuinfo}
        for name, text in files.items():
            (self._folder / name).write_text(text)
            self._monkeypatch.setattr(clock, name, str(self._folder / name))
        self._monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=architecture))


def test_the_tsc_is_taken_where_the_kernel_keeps_time_with_it(machine: MachineSetter) -> None:
    machine("x86_64")

    assert clock.choose_clock(native=True) == (clock.TSC, "invariant TSC, which the kernel keeps time with")


@pytest.mark.parametrize(
    ("source", "cpuinfo"),
    [("hpet", FLAGS), ("kvm-clock", FLAGS), ("tsc", FLAGS.replace("nonstop_tsc", "")), ("tsc", "")],
)
def test_a_tsc_that_the_kernel_does_not_trust_is_not_taken(machine: MachineSetter, source: str, cpuinfo: str) -> None:
    machine("x86_64", source, cpuinfo)

    assert clock.choose_clock(native=True) == (clock.MONOTONIC, "no counter that the kernel itself trusts")


def test_without_the_kernels_word_the_tsc_is_not_taken(machine: MachineSetter, monkeypatch: pytest.MonkeyPatch) -> None:
    machine("x86_64")
    monkeypatch.setattr(clock, "_CLOCKSOURCE", "/nowhere/at/all")

    assert clock.choose_clock(native=True).kind == clock.MONOTONIC


def test_an_arm_machine_has_its_generic_timer(machine: MachineSetter) -> None:
    machine("aarch64")

    assert clock.choose_clock(native=True) == (clock.CNTVCT, "cntvct_el0 runs at one rate on every core")


def test_another_machine_has_the_kernels_clock(machine: MachineSetter) -> None:
    machine("riscv64")

    assert clock.choose_clock(native=True).kind == clock.MONOTONIC


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("monotonic", clock.MONOTONIC), ("tsc", clock.TSC), ("auto", clock.TSC), ("", clock.TSC)],
)
def test_the_environment_decides(
    machine: MachineSetter, monkeypatch: pytest.MonkeyPatch, asked: str, expected: int
) -> None:
    machine("x86_64")
    monkeypatch.setenv("MSTXKIT_CLOCK", asked)

    assert clock.choose_clock(native=True).kind == expected


def test_the_tsc_can_be_asked_for_where_it_is_not_trusted(
    machine: MachineSetter, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("x86_64", source="hpet")
    monkeypatch.setenv("MSTXKIT_CLOCK", "tsc")

    assert clock.choose_clock(native=True) == (clock.TSC, "MSTXKIT_CLOCK=tsc")


@pytest.mark.parametrize("asked", ["cntvct", "sundial", "TSC "])
def test_what_is_no_clock_of_the_machine_is_said_to_be_none(
    machine: MachineSetter, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    machine("x86_64", source="hpet")
    monkeypatch.setenv("MSTXKIT_CLOCK", asked)
    found = clock.choose_clock(native=True)

    assert found.kind == clock.MONOTONIC
    assert found.reason.startswith(f"MSTXKIT_CLOCK={asked} is no clock of this machine; ")


def test_the_python_hot_path_reads_the_kernels_clock(machine: MachineSetter, monkeypatch: pytest.MonkeyPatch) -> None:
    machine("x86_64")
    monkeypatch.setenv("MSTXKIT_CLOCK", "tsc")

    assert clock.choose_clock(native=False) == (clock.MONOTONIC, "the Python hot path reads CLOCK_MONOTONIC")
