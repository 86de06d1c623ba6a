"""One rank in a world of its own; a file whose tests begin otherwise has a `world` of its own."""

from __future__ import annotations

import pytest
from builders.escalation_world import Rank, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def rank(world: World) -> Rank:
    """The only one."""
    (one,) = world.ranks
    return one
