"""A fault inside mstxkit is counted and logged once, and nothing that happens on the way reaches the training code."""

from __future__ import annotations

import logging
from typing import Iterator

import pytest
from builders import lives

from mstxkit import faults


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The package's logger; handlers and filters that a test adds to it are taken off again."""
    found = logging.getLogger("mstxkit")
    handlers, filters, level, propagate = found.handlers[:], found.filters[:], found.level, found.propagate
    yield found
    found.handlers[:], found.filters[:], found.level, found.propagate = handlers, filters, level, propagate


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "on_fault", None)


@pytest.fixture
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_said", set())


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")

    __repr__ = __str__


def raised(message: str = "broken") -> ValueError:
    """An exception with a traceback."""
    try:
        raise ValueError(message)
    except ValueError as exc:
        return exc


def test_faults_are_counted_by_place() -> None:
    for where in ("sealer", "adopt", "sealer", "sealer"):
        faults.note_fault(where, raised())

    assert faults.counts == {"sealer": 3, "adopt": 1}
    assert sum(faults.counts.values()) == 4


def test_what_comes_up_inside_goes_no_further_unless_it_is_of_another_kind() -> None:
    for exc in (raised(), OSError("full")):
        with faults.noted("sealer", (ValueError, OSError)):
            raise exc
    for exc in (KeyError("of another kind"), KeyboardInterrupt()):
        with pytest.raises(type(exc)), faults.noted("adopt", ValueError):
            raise exc
    with pytest.raises(SystemExit), faults.noted("adopt"):
        raise SystemExit

    assert faults.counts == {"sealer": 2}


def test_only_the_first_fault_of_a_place_is_logged_and_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    for where in ("sealer", "adopt", "sealer", "adopt"):
        faults.note_fault(where, raised(f"in {where}"))

    assert [(found.name, found.levelname) for found in caplog.records] == [("mstxkit", "WARNING")] * 2
    assert ["fault in sealer" in caplog.messages[0], "fault in adopt" in caplog.messages[1]] == [True, True]
    assert "your program is not affected" in caplog.messages[0]
    assert "in raised" in caplog.text
    assert "ValueError: in sealer" in caplog.text


def test_a_fault_without_a_traceback_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    faults.note_fault("sealer", ValueError("never raised"))

    assert "ValueError: never raised" in caplog.text


def test_events_that_are_no_exception_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        faults.warn_once("names", "too many of them")

    assert caplog.messages == ["mstxkit: too many of them"]
    assert faults.counts == {"names": 3}


@pytest.mark.parametrize("message", ["100%", "%s %d", "{0}", "\udc80", "\x1b[2J", ""], ids=ascii)
def test_a_message_is_not_taken_for_a_format(caplog: pytest.LogCaptureFixture, message: str) -> None:
    faults.warn_once("here", message)

    assert caplog.messages == [f"mstxkit: {message}"]


def test_after_a_reset_the_next_fault_is_the_first_again(caplog: pytest.LogCaptureFixture) -> None:
    faults.note_fault("sealer", raised())
    faults.reset_counts()
    assert not faults.counts

    faults.note_fault("sealer", raised())

    assert faults.counts == {"sealer": 1}
    assert len(caplog.records) == 2


def test_the_engine_is_told_of_every_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(faults, "on_fault", lambda: told.append(sum(faults.counts.values())))
    for where in ("sealer", "sealer", "adopt"):
        faults.note_fault(where, raised())

    assert told == [1, 2, 3]


def test_an_engine_that_raises_when_told_does_not_reach_the_caller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(faults, "on_fault", lambda: 1 // 0)
    for _ in range(2):
        faults.note_fault("sealer", raised())

    assert faults.counts == {"sealer": 2}
    assert len(caplog.records) == 1


def test_a_handler_that_raises_does_not_reach_the_caller(logger: logging.Logger) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)
            raise RuntimeError("disk full")

    seen: list[logging.LogRecord] = []
    logger.addHandler(Raising())
    faults.note_fault("sealer", raised())
    faults.warn_once("names", "too many")

    assert len(seen) == 2
    assert sum(faults.counts.values()) == 2


def test_a_filter_that_raises_does_not_reach_the_caller(logger: logging.Logger) -> None:
    asked: list[logging.LogRecord] = []

    def raising(record: logging.LogRecord) -> bool:
        asked.append(record)
        raise RuntimeError("broken filter")

    logger.addFilter(raising)
    faults.note_fault("sealer", raised())

    assert len(asked) == 1
    assert faults.counts == {"sealer": 1}


def test_an_exception_that_cannot_be_printed_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    faults.note_fault("sealer", Unprintable())

    assert faults.counts == {"sealer": 1}
    assert "Unprintable" in caplog.text


def test_a_fault_at_the_recursion_limit_is_counted() -> None:
    """Where a program runs out of stack mstxkit does as well, and must not make it another error."""

    def deeper() -> None:
        try:
            deeper()
        except RecursionError as exc:
            if not faults.counts:
                faults.note_fault("deep", exc)
            raise

    with pytest.raises(RecursionError):
        deeper()

    assert faults.counts["deep"] >= 1


def test_an_interrupt_while_logging_is_not_swallowed(logger: logging.Logger) -> None:
    def interrupted(record: logging.LogRecord) -> bool:
        raise KeyboardInterrupt

    logger.addFilter(interrupted)
    with pytest.raises(KeyboardInterrupt):
        faults.note_fault("sealer", raised())

    assert faults.counts == {"sealer": 1}


def test_a_fault_is_raised_where_tests_of_mstxkit_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "reraise", True)
    exc = raised()
    with pytest.raises(ValueError) as caught:
        faults.note_fault("sealer", exc)

    assert caught.value is exc
    assert faults.counts == {"sealer": 1}


def test_nothing_is_raised_again_unless_asked_for() -> None:
    assert faults.reraise is False


@pytest.mark.usefixtures("_nothing_said")
def test_what_is_said_during_a_fork_is_logged_after_it(caplog: pytest.LogCaptureFixture) -> None:
    faults.hold_logging()
    faults.say_once("news")
    faults.warn_once("cap", "reached")
    during = list(caplog.messages)
    faults.go_on()

    assert (during, caplog.messages) == ([], ["mstxkit: news", "mstxkit: reached"])


def test_a_program_without_logging_hears_of_it_all_the_same() -> None:
    """A thread of ours that imports it while another one forks has it let go of a lock that it did not take."""
    program = """
        import sys
        from mstxkit import faults
        faults.say_once("seen"), faults.say_once("of no weight", is_asked_for=True)
        faults.note_fault("sealer", ValueError("broken"))
        print("logging" in sys.modules)
    """
    status, out, err = lives.finished(lives.start(program))

    assert (status, out) == (0, "False\n")
    assert err.splitlines() == [
        "mstxkit: seen",
        "mstxkit: fault in sealer, counted from here on; your program is not affected",
        "ValueError: broken",
    ]
