"""`capture(act="escalate")`: by argument, by configuration, by environment, and handed on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import pytest
from builders import lives

import mstxkit
from mstxkit.bootstrap import ray_environment, settings
from mstxkit.errors import CaptureError, ConfigError


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("MSTXKIT_ACT", raising=False)
    with lives.own_run(tmp_path) as folder:
        yield folder


def test_it_is_handed_on_to_children_and_ray_workers_while_it_captures(run: Path) -> None:
    with mstxkit.capture(run, act="escalate"):
        during, passed_on = os.environ.get("MSTXKIT_ACT"), ray_environment.pick_variables(os.environ)

    assert (during, passed_on["MSTXKIT_ACT"]) == ("escalate", "escalate")
    assert "MSTXKIT_ACT" not in os.environ


def test_by_default_verdicts_are_observed(run: Path) -> None:
    assert settings.resolve_settings({}, {})[1].act == "observe"


def test_the_environment_says_it_where_no_argument_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSTXKIT_ACT", "escalate")

    assert settings.resolve_settings({}, {})[1].act == "escalate"
    assert settings.resolve_settings({}, {"act": "observe"})[1].act == "observe"


def test_a_configuration_says_it(run: Path) -> None:
    pytest.importorskip("pydantic")
    with mstxkit.capture(run, config={"mstxkit": {"act": "escalate"}}):
        assert os.environ.get("MSTXKIT_ACT") == "escalate"


@pytest.mark.parametrize("act", ["Escalate", "", "act", 1, None, True])
def test_what_it_may_be_is_said(act: object) -> None:
    with pytest.raises(CaptureError, match=r"act=.*one of observe, escalate is needed"):
        settings.resolve_settings({}, {"act": act})


def test_a_configuration_that_says_something_else_is_refused(run: Path) -> None:
    pytest.importorskip("pydantic")
    with pytest.raises(ConfigError, match="act"):
        mstxkit.capture(run, config={"mstxkit": {"enabled": True, "act": "always"}})
