"""After a session a process of its own looks after profiles: started once, with nothing of the training, nobody's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.local_profiles import REQUEST, Place
from builders.waiting import until

from mstxkit.errors import CaptureError
from mstxkit.escalation.duty import caretaker
from mstxkit.escalation.duty.caretaker import Caretaker
from mstxkit.escalation.duty.settings import DutySettings, check_settings
from mstxkit.host import detached
from mstxkit.store.aftercare import Care

WITHIN_S = 60


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def children() -> set[str]:
    """Of this process, ended ones that nobody waited for too."""
    return {pid for thread in Path("/proc/self/task").iterdir() for pid in (thread / "children").read_text().split()}


def test_what_a_session_left_on_the_disk_is_in_the_run_soon_after(place: Place) -> None:
    file = place.record()
    taken = Caretaker(Care(place.run, place.run_id, place.disk, mb_s=1000))

    before = children()

    taken.consider(1)

    assert children() == before
    until(lambda: not file.data.exists())
    assert (place.run / "profiles" / REQUEST / "node_0_1_ascend_pt" / "PROF_1" / "data").is_file()


@pytest.mark.parametrize(
    ("care", "ended", "is_started"),
    [
        ({}, 0, False),
        ({}, 1, True),
        ({"disk": None}, 1, False),
        ({"mb_s": 0}, 1, False),
        ({"mb_s": 0, "host_bytes": 5}, 1, True),
        ({"disk": None, "run_bytes": 5}, 1, True),
    ],
)
def test_it_is_started_where_there_is_something_to_do(
    place: Place, monkeypatch: pytest.MonkeyPatch, care: dict[str, Any], ended: int, is_started: bool
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(detached.os, "posix_spawn", lambda *words, **_: started.append(words) or 1 << 22)
    taken = Caretaker(Care(place.run, place.run_id, place.disk)._replace(**care))

    for _ in range(3):
        taken.consider(ended)

    assert len(started) == is_started


def test_nothing_of_the_training_is_in_its_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    monkeypatch.setenv("MSTXKIT_RUN", str(place.run))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr(detached.os, "posix_spawn", lambda path, words, environ, **_: seen.append(environ) or 1 << 22)

    Caretaker(Care(place.run, place.run_id, place.disk)).consider(1)

    assert {name: value for name, value in seen[0].items() if name.startswith("MSTXKIT_")} == {"MSTXKIT_OFF": "1"}
    assert "RANK" not in seen[0]


def test_where_it_cannot_be_started_that_is_a_fault_and_no_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise OSError("no memory")

    noted: list[str] = []
    monkeypatch.setattr(detached.os, "posix_spawn", refuse)
    monkeypatch.setattr(caretaker.faults, "note_fault", lambda site, exc: noted.append(f"{site}: {exc}"))
    Caretaker(Care(place.run, place.run_id, place.disk)).consider(1)

    assert noted == ["caretaker: no memory"]


def test_its_words_say_all_of_it(place: Place) -> None:
    care = Care(place.run, place.run_id, place.disk, 12.5, 3, 4)

    assert detached.of_words(Care, detached.words_of(care)) == care
    assert detached.of_words(Care, detached.words_of(care._replace(disk=None))).disk is None


@pytest.mark.parametrize(
    "settings", [{"profiles": "/a"}, {"profiles_mb_s": -1}, {"profiles_host_bytes": -1}, {"profiles_run_bytes": "x"}]
)
def test_what_cannot_be_is_refused_when_capture_is_called(settings: dict[str, Any]) -> None:
    with pytest.raises(CaptureError, match="profiles"):
        check_settings(DutySettings(**settings))
