"""Each life of a judge has its own file; once a later one has begun, what an earlier one says counts no more."""

from __future__ import annotations

import json
import resource
import signal
import threading
from pathlib import Path

import pytest
from builders.threads import on_threads

from mstxkit.store import layout, verdicts
from mstxkit.store.verdicts import COMPUTE, JudgeLife, Verdict

WHO = "controller"


def said(id: str, time_ns: int, rank: int = 1, withdrawn: str = "") -> Verdict:
    return Verdict(id, time_ns, 7, COMPUTE, "actor_update", rank, withdrawn=withdrawn)


def test_what_one_that_was_cut_off_says_later_counts_for_nothing_whatever_its_clock(tmp_path: Path) -> None:
    before = JudgeLife(tmp_path, WHO)
    before.append([said("a", 10), said("b", 10, 2)])
    now = JudgeLife(tmp_path, WHO)
    now.append([said("a", 5, withdrawn="as fast as the others again")])
    before.append([said("a", 99), said("c", 99, 3)])

    assert {verdict.id: verdict.withdrawn for verdict in verdicts.read_verdicts(tmp_path)} == {
        "a": "as fast as the others again", "b": "",
    }  # fmt: skip
    assert before.is_over() and not now.is_over()


def test_lives_that_begin_at_once_have_files_of_their_own(tmp_path: Path) -> None:
    lives: list[JudgeLife] = []
    begin = threading.Barrier(8)

    def live() -> None:
        begin.wait()
        lives.append(JudgeLife(tmp_path, WHO))

    on_threads(8, lambda _: live())
    for number, life in enumerate(lives):
        life.append([said(str(number), number)])

    assert sum(not life.is_over() for life in lives) == 1
    assert len(list((tmp_path / layout.VERDICTS).iterdir())) == 8
    (last,) = (number for number, life in enumerate(lives) if not life.is_over())
    assert str(last) in {verdict.id for verdict in verdicts.read_verdicts(tmp_path)}


def test_on_a_full_disk_none_begins_and_no_file_of_a_try_is_left(tmp_path: Path) -> None:
    """RLIMIT_FSIZE, which needs no mount."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        for _ in range(3):
            with pytest.raises(OSError):
                JudgeLife(tmp_path, WHO)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)

    assert list((tmp_path / layout.VERDICTS).iterdir()) == []


def test_judges_of_other_names_do_not_end_it_and_the_newest_word_of_two_counts(tmp_path: Path) -> None:
    life = JudgeLife(tmp_path, WHO)
    JudgeLife(tmp_path, "watch").append([said("a", 5, 2)])
    life.append([said("a", 10)])

    assert not life.is_over()
    assert [verdict.rank for verdict in verdicts.read_verdicts(tmp_path)] == [1]


def test_a_file_that_has_become_too_long_begins_anew_and_still_ends_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, now = JudgeLife(tmp_path, WHO), JudgeLife(tmp_path, WHO)
    monkeypatch.setattr(verdicts, "LIMIT_BYTES", 1500)
    for number in range(9):
        now.append([said(f"n{number}", number)])
    before.append([said("late", 99)])

    ids = {verdict.id for verdict in verdicts.read_verdicts(tmp_path)}
    assert "n8" in ids and len(ids) < 9 and "late" not in ids


@pytest.mark.parametrize(
    "first", [b"[1]", b'{"before": 3}', b'{"before": {"controller.jsonl": "x", "..": 1, "controller.0007.jsonl": 0}}']
)
def test_no_first_line_ends_what_is_not_before_it(tmp_path: Path, first: bytes) -> None:
    folder = tmp_path / layout.VERDICTS
    folder.mkdir()
    for name in ("controller.jsonl", "controller.0007.jsonl"):
        (folder / name).write_bytes(said(name, 1).line())
    (folder / "controller.0003.jsonl").write_bytes(first + b"\n")

    assert {verdict.id for verdict in verdicts.read_verdicts(tmp_path)} == {"controller.jsonl", "controller.0007.jsonl"}


def test_a_life_is_the_last_number_of_the_name() -> None:
    assert verdicts.life_of("hang-h.0.12-ab.jsonl") == ("hang-h.0.12-ab", 0)
    assert verdicts.life_of("controller.0012.jsonl") == (WHO, 12)
    assert verdicts.LifeName(WHO, 12).file == "controller.0012.jsonl"


def test_the_first_line_of_a_life_says_how_long_the_files_before_it_were(tmp_path: Path) -> None:
    JudgeLife(tmp_path, WHO).append([said("a", 10)])
    first = tmp_path / layout.VERDICTS / "controller.0001.jsonl"
    JudgeLife(tmp_path, WHO)

    line = first.with_name("controller.0002.jsonl").read_text()
    assert json.loads(line) == {"before": {first.name: first.stat().st_size}}
