"""What is decorated can be used as before: 101 claims, of which peers' decorators hold 75 to 98."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
from builders import decorator_claims

from mstxkit import faults, mstx_range, mstx_timer, stage
from mstxkit.testing import captured

DECORATORS = {"mstx_timer": mstx_timer, "mstx_range": mstx_range("named"), "stage": stage("named")}


@pytest.fixture(autouse=True)
def is_told_anew() -> Iterator[None]:
    """What is left as it is is logged once a process, whose log other tests read."""
    said = set(faults._said)
    yield
    faults._said.clear()
    faults._said.update(said)


@pytest.mark.parametrize("name", DECORATORS)
def test_every_claim_holds_while_nothing_records(name: str) -> None:
    assert set(decorator_claims.broken(DECORATORS[name])) == decorator_claims.NOT_WANTED


@pytest.mark.parametrize("name", DECORATORS)
def test_every_claim_holds_while_all_is_recorded(name: str) -> None:
    with captured():
        broken = decorator_claims.broken(DECORATORS[name])

    assert set(broken) == decorator_claims.NOT_WANTED


def test_the_table_tells_decorators_apart() -> None:
    """As the simplest one: it hides what is beneath it, and a function stands for what is none."""

    def hiding(function: Any) -> Any:
        return lambda *args, **kwargs: function(*args, **kwargs)

    broken = decorator_claims.broken(hiding)

    assert {"name", "iscoroutinefunction", "staticmethod below", "callable object keeps subscript"} <= set(broken)
    assert len(broken) >= 40
