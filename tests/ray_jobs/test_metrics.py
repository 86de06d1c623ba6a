"""Under Ray the actor that judges sets Ray's own metrics, with its dashboard or without; no port is opened for them."""

from __future__ import annotations

import pytest
from builders.ray_jobs import Start

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_ray_exports_the_jobs_figures_and_where_it_cannot_nothing_else_suffers(start: Start) -> None:
    """Ray's agent exports them where its packages for that are installed (`ray[default]`); it has no dashboard here."""
    pytest.importorskip("ray")
    said = start("metrics", MSTXKIT_JUDGE="1").said

    assert said["judged"]
    assert said["notes"] == []
    assert all(figures["mstxkit/time_s/actor_generate/max"] > 0 for figures in said["figures"])
    assert not any(fault for faults in said["faults"] for fault in faults if fault != "cluster.ray")
    if said["agent"]:
        exported = "\n".join(said["lines"])
        assert 'role="actor"' in exported
        assert "ray_mstxkit_stage_seconds_max{" in exported
        assert "ray_mstxkit_members{" in exported
