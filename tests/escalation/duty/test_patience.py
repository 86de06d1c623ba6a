"""A rank tells HCCL's time-outs of its own environment, and keeps its sessions within the patience of the others."""

from __future__ import annotations

from typing import Any, Callable

import pytest
from builders.escalated_run import control
from builders.rank_on_duty import UPDATE, NewRank, Rank

from mstxkit.escalation.duty import duty as duties
from mstxkit.store.report import Standing


@pytest.fixture
def on_npu(new_rank: NewRank, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rank]:
    """A rank of several whose profiler is torch_npu's, in an environment with these variables."""

    def made(world_size: int = 2, **variables: str) -> Rank:
        for name in ("HCCL_EXEC_TIMEOUT", "HCCL_CONNECT_TIMEOUT"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(duties.backends, "find_profiler", lambda: ("torch_npu", {}))
        return new_rank(rank=0, world_size=world_size)

    return made


def standing(rank: Rank) -> Standing:
    acknowledgement = control(rank.run).acknowledgement(0)
    assert acknowledgement is not None
    return Standing.read(acknowledgement.document)


def test_the_time_outs_of_its_environment_are_told(on_npu: Any) -> None:
    rank = on_npu(HCCL_EXEC_TIMEOUT="60")

    assert standing(rank).timeouts == {"HCCL_EXEC_TIMEOUT": "60"}


def test_a_session_is_bounded_by_them_and_the_acknowledgement_says_so_before_it(on_npu: Any) -> None:
    rank = on_npu(HCCL_EXEC_TIMEOUT="60")
    request = rank.ask(occurrences=1)
    armed = rank.last(request)
    rank.once(UPDATE)

    assert armed.state == "armed"
    assert "each session is ended at the first stage or piece after 30 s" in armed.reason
    assert "other ranks wait 60 s at most (HCCL_EXEC_TIMEOUT, as set in its environment)" in armed.reason
    assert rank.session.orders[0].seconds == 30


def test_without_any_canns_default_leaves_the_usual_limit(on_npu: Any) -> None:
    rank = on_npu()
    for step in (1, 2):
        rank.engine.step(step)
        rank.look()
    request = rank.ask(occurrences=1)
    armed = rank.last(request)
    rank.once(UPDATE)

    assert rank.session.orders[0].seconds == 600
    assert not armed.reason


def test_before_the_first_step_has_ended_connections_may_be_made_yet(on_npu: Any) -> None:
    rank = on_npu()
    rank.engine.step(0)
    request = rank.ask(occurrences=1)

    assert "each session is ended at the first stage or piece after 60 s" in rank.last(request).reason
    assert "HCCL_CONNECT_TIMEOUT, CANN's default" in rank.last(request).reason


def test_nobody_waits_for_the_only_rank(on_npu: Any) -> None:
    rank = on_npu(world_size=1, HCCL_EXEC_TIMEOUT="60")
    rank.ask(occurrences=1)
    rank.once(UPDATE)

    assert rank.session.orders[0].seconds == 600


@pytest.mark.parametrize("backend", ["torch", None])
def test_without_hccl_its_time_outs_are_no_matter(
    on_npu: Any, backend: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = on_npu(world_size=8, HCCL_EXEC_TIMEOUT="60")
    before = rank.duty._machine.patience
    monkeypatch.setattr(duties.backends, "find_profiler", lambda: (backend, {}))
    rank.look()

    assert before is not None
    assert rank.duty._machine.patience is None


def test_what_start_and_stop_took_here_is_left_for_the_next(on_npu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = on_npu(world_size=8, HCCL_EXEC_TIMEOUT="60")
    now_s = [0.0]
    monkeypatch.setattr(duties.time, "monotonic", lambda: now_s[0])
    for name, takes_s in (("begin", 5.0), ("end", 7.0)):
        monkeypatch.setattr(rank.session, name, slowed(getattr(rank.session, name), now_s, takes_s))
    rank.ask(occurrences=1)
    rank.once(UPDATE)
    rank.look()

    patience = rank.duty._machine.patience

    assert patience is not None
    assert (patience.bound_s("full"), patience.bound_s("light")) == (18, 30)


def slowed(call: Callable[..., Any], now_s: list[float], takes_s: float) -> Callable[..., Any]:
    """The same, by a clock that goes on by so much meanwhile."""

    def called(*given: Any) -> Any:
        now_s[0] += takes_s
        return call(*given)

    return called
