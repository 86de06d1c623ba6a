"""The worker's hook, called where there is no Ray: it does what it can, and leaves the rest to the next call."""

from __future__ import annotations

import os
from typing import Iterator

import pytest

from mstxkit import faults
from mstxkit.bootstrap import activation, ray, ray_job
from mstxkit.bootstrap.ray_environment import NEXT_HOOK


@pytest.fixture(autouse=True)
def _undone() -> Iterator[None]:
    yield
    ray_job.restore_ray("worker")


def test_the_users_hook_waits_until_the_worker_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The `.pth` file calls ours at the import of Ray; Ray calls it again, as the hook."""
    monkeypatch.setenv(NEXT_HOOK, "no_such_module.hook")

    ray.setup()

    assert os.environ[NEXT_HOOK] == "no_such_module.hook"


def test_a_fault_of_ours_is_counted_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(activation, "autopatch_from_environment", fail)

    ray.setup()

    assert faults.counts == {"setting up a Ray worker": 1}


def test_without_ray_there_is_nothing_to_note() -> None:
    assert ray_job.arrange_ray("worker") == ()
