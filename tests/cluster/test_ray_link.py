"""The way to the controller over Ray: one call at a time, never waited for; what is not answered is sent again.

With a stand-in for Ray that answers when it is told to. The real one: tests/ray_jobs/test_judged.py.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mstxkit.cluster import clocks, ray_link
from mstxkit.cluster.ray_link import RayLink
from mstxkit.host import identity
from mstxkit.store.settings_file import Figures

RUN, CLOCK = "0" * 32, -1


class RayError(Exception):
    """As Ray's."""


class FakeRay:
    """One actor, whose calls are answered when `answers` is set."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.options: list[dict[str, Any]] = []
        self.answers, self.fails = True, False
        self.take = SimpleNamespace(remote=self._take)
        self.clock = SimpleNamespace(remote=lambda: CLOCK)

    def is_initialized(self) -> bool:
        return True

    def _take(self, frames: bytes) -> int:
        self.calls.append(frames)
        return len(self.calls)

    def remote(self, cls: type) -> Any:
        def made(**options: Any) -> Any:
            self.options.append(options)
            return SimpleNamespace(remote=lambda *_: self)

        return SimpleNamespace(options=made)

    def wait(self, calls: list[int], timeout: float) -> tuple[list[int], list[int]]:
        assert timeout == 0 or (calls == [CLOCK] and timeout < 0.05), "nobody waits"
        return (calls, []) if self.answers or self.fails else ([], calls)

    def get(self, call: int, timeout: float) -> Any:
        if self.fails:
            raise RayError
        if call == CLOCK:
            return clocks.answer_exchange()
        return Figures(call, {"mstxkit/verdicts": 1.0}).as_json(RUN)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    worker = SimpleNamespace(global_worker=SimpleNamespace(connected=True))
    monkeypatch.setitem(sys.modules, "ray", fake)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "ray._private.worker", worker)  # type: ignore[arg-type]
    monkeypatch.setattr(ray_link.faults, "note_fault", lambda site, exc: None)
    return fake


@pytest.fixture
def link(tmp_path: Path) -> RayLink:
    return RayLink(tmp_path, RUN)


def test_one_call_is_under_way_at_a_time_and_what_came_meanwhile_goes_together(ray: FakeRay, link: RayLink) -> None:
    ray.answers = False
    for frame in (b"a", b"b", b"c"):
        link.post(frame)
    ray.answers = True

    answer = link.answer()
    link.answer()

    assert ray.calls == [b"a", b"bc"]
    assert answer is not None
    assert answer.values == {"mstxkit/verdicts": 1.0}


def test_clocks_are_compared_with_the_controller_s_and_the_quickest_answers_are_handed_on(
    ray: FakeRay, link: RayLink
) -> None:
    link.post(b"a")

    stamps, again = link.take_stamps(), link.take_stamps()

    assert len(stamps) == 2 and again == []
    for each in stamps:
        assert each.boot == identity.boot_id()
        assert each.sent_ns <= each.reached_ns <= each.answered_ns <= each.back_ns


def test_a_controller_that_is_slow_to_say_its_time_costs_one_question(ray: FakeRay, link: RayLink) -> None:
    asked: list[int] = []
    ray.clock.remote = lambda: asked.append(CLOCK) or CLOCK  # type: ignore[func-returns-value]
    ray.answers = False
    link.post(b"a")

    assert (asked, link.take_stamps()) == ([CLOCK], [])


def test_the_actor_claims_nothing_and_outlives_its_driver_and_itself(ray: FakeRay, link: RayLink) -> None:
    link.post(b"a")

    (options,) = ray.options
    assert (options["name"], options["namespace"]) == (f"mstxkit-{RUN}", "mstxkit")
    assert options["get_if_exists"] is True
    assert (options["num_cpus"], options["lifetime"], options["max_restarts"]) == (0, "detached", -1)
    assert options["runtime_env"] == {"env_vars": {"MSTXKIT_OFF": "1"}}, "it is no process of the run"


def test_what_a_killed_controller_has_not_answered_is_sent_again(
    ray: FakeRay, link: RayLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_link, "_AGAIN_AFTER_S", 0.0)
    ray.fails = True
    link.post(b"a")
    link.post(b"b")
    ray.fails = False
    link.answer()

    assert "".join(call.decode() for call in ray.calls).endswith("ab")
    assert len(ray.options) >= 2, "by its name, again"


def test_a_controller_that_never_answers_costs_a_bounded_memory_and_no_time(ray: FakeRay, link: RayLink) -> None:
    ray.answers = False
    for _ in range(2000):
        link.post(b"x" * 100)

    assert len(ray.calls) == 1
    assert len(link._waiting) <= ray_link._WAITING_AT_MOST


def test_without_ray_nothing_is_kept_and_nothing_asked(link: RayLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    for _ in range(10):
        link.post(b"x")

    assert (link._waiting, link.answer(), link.is_open) == ([], None, False)


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b'{"format": 1, "run": "x"}', None, 7])
def test_an_answer_that_is_none_is_no_answer(
    ray: FakeRay, link: RayLink, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(ray, "get", lambda call, timeout: answer)
    link.post(b"a")

    assert link.answer() is None


def test_while_ray_is_shut_down_nothing_of_it_is_called(ray: FakeRay, link: RayLink) -> None:
    with ray_link.keep_quiet():
        link.post(b"a")
        during = list(ray.calls)
    link.answer()

    assert during == []
    assert ray.calls == [b"a"]


def test_the_end_of_ray_waits_for_the_call_under_way_and_no_other_follows_it(ray: FakeRay, link: RayLink) -> None:
    """Ray ends a process whose thread finds its worker gone, with status 1: as with a call that takes its time."""
    goes_on = threading.Event()
    take = ray.take.remote
    ray.take = SimpleNamespace(remote=lambda frames: (goes_on.wait(30), take(frames))[1])
    slow = threading.Thread(target=link.post, args=(b"a",), daemon=True)
    slow.start()
    while not ray_link._calling.locked():
        time.sleep(0.01)
    threading.Timer(0.3, goes_on.set).start()
    with ray_link.keep_quiet():
        was_under_way = ray_link._calling.locked() and slow.is_alive() and not goes_on.is_set()
        calls = len(ray.calls)
        link.answer()
        during = len(ray.calls) - calls
    slow.join(30)

    assert (was_under_way, calls, during) == (False, 1, 0)


def test_the_end_of_ray_waits_for_a_call_under_way_only_so_long(ray: FakeRay, link: RayLink) -> None:
    goes_on = threading.Event()
    ray.take = SimpleNamespace(remote=lambda frames: goes_on.wait(30))
    hanging = threading.Thread(target=link.post, args=(b"a",), daemon=True)
    hanging.start()
    while not ray_link._calling.locked():
        time.sleep(0.01)
    with ray_link.keep_quiet():
        was_hanging = hanging.is_alive()
    goes_on.set()
    hanging.join(30)

    assert was_hanging


def test_after_the_end_of_the_process_began_nothing_is_sent(ray: FakeRay, link: RayLink) -> None:
    link.close()
    link.post(b"a")

    assert ray.calls == []


def test_once_the_interpreter_ends_no_link_begins_to_call_ray(
    ray: FakeRay, link: RayLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_link, "_is_over", threading.Event())
    ray_link.end_link()
    link.post(b"a")

    assert (ray.calls, ray.options) == ([], [])


def test_a_call_that_the_interpreters_end_does_not_wait_for_is_the_last_one(
    ray: FakeRay, link: RayLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_link, "_is_over", threading.Event())
    monkeypatch.setattr(ray_link, "_ENDS_WITHIN_S", 0.05)
    goes_on, asked = threading.Event(), list[int]()
    ray.take = SimpleNamespace(remote=lambda frames: goes_on.wait(30))
    ray.clock = SimpleNamespace(remote=lambda: asked.append(CLOCK) or CLOCK)
    hanging = threading.Thread(target=link.post, args=(b"a",), daemon=True)
    hanging.start()
    while not ray_link._calling.locked():
        time.sleep(0.01)
    ray_link.end_link()
    goes_on.set()
    hanging.join(30)

    assert asked == []
