"""When it is decided what a death was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mstxkit.incidents.dying import Death, Dying

SECOND = 1_000_000_000


def process(pid: int, ppid: int, under: str) -> Any:
    return SimpleNamespace(who={"pid": pid, "ppid": ppid, "under": under})


def test_what_a_worker_of_ray_has_started_is_judged_once_that_may_be_gone_too() -> None:
    """A worker that exits kills its children first: vLLM's engine was told of while its server was on its way out."""
    engine, server, other = process(60, 51, "process"), process(51, 1, "ray"), process(52, 1, "ray")
    dying = Dying()
    dying.deaths = [Death(engine, 0, 9, 0)]

    assert dying.ripe(2 * SECOND, [server]) == []
    assert dying.ripe(4 * SECOND, [server]) == dying.ripe(2 * SECOND, [other]) == dying.deaths
