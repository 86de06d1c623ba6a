"""Figures for `metrics()`: read ahead for whoever asks often, never older than what is read by the one who asks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mstxkit.recorder import figures
from mstxkit.recorder.figures import FiguresHere
from mstxkit.store import documents
from mstxkit.store.settings_file import Figures


class Host:
    """A file of figures, a clock, and how often the file was read."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.now_s, self.reads = file, 100.0, 0
        read = figures.settings_file.read_figures
        counting = SimpleNamespace(read_figures=lambda *of: (self.counted(), read(*of))[1])
        monkeypatch.setattr(figures, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(figures, "settings_file", counting)
        self.here = FiguresHere(file, "run")

    def is_asked_often(self) -> None:
        """Twice within a second."""
        self.here.values()
        self.here.values()

    def counted(self) -> None:
        self.reads += 1

    def says(self, value: float) -> None:
        documents.replace_file(self.file, Figures(3, {"x": value}).as_json("run"))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path / "figures", monkeypatch)


def test_nothing_is_read_ahead_for_whom_nobody_is(host: Host) -> None:
    host.says(1.0)

    host.here.read_ahead()

    assert host.reads == 0
    assert host.here.values() == {"x": 1.0}


def test_for_who_asks_once_in_five_seconds_nothing_is_read_ahead_as_it_would_be_too_old(host: Host) -> None:
    for step in range(3):
        host.says(step)
        host.now_s += 5.0
        assert host.here.values() == {"x": step}
        host.here.read_ahead()

    assert host.reads == 3


def test_who_asks_often_reads_nothing_itself_and_gets_a_dict_of_its_own(host: Host) -> None:
    host.says(1.0)
    host.is_asked_often()
    host.here.read_ahead()
    host.here.values()["x"] = 5.0
    host.now_s += 1.0

    assert host.here.values() == {"x": 1.0}
    assert host.reads == 3


def test_what_is_said_anew_is_read_ahead_once(host: Host) -> None:
    host.says(1.0)
    host.is_asked_often()
    for _ in range(3):
        host.here.read_ahead()
    host.says(2.0)
    for _ in range(3):
        host.here.read_ahead()

    assert host.here.values() == {"x": 2.0}
    assert host.reads == 4


def test_where_nobody_reads_ahead_any_more_who_asks_reads(host: Host) -> None:
    host.says(1.0)
    host.is_asked_often()
    host.here.read_ahead()
    host.says(2.0)
    host.now_s += 2.0

    assert host.here.values() == {"x": 2.0}


@pytest.mark.parametrize("number", [10**400, float("inf"), True, "1"], ids=["long", "inf", "flag", "text"])
def test_what_is_no_figure_is_left_out_and_never_an_error_of_the_training_that_asks(host: Host, number: Any) -> None:
    host.says(number)
    host.is_asked_often()
    host.here.read_ahead()

    assert host.here.values() == {}
