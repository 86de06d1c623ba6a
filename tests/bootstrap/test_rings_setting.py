"""`capture(rings=True)`: rings are on for this process, its children and Ray's workers, until it stops."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders import lives

import mstxkit
from mstxkit.bootstrap import ray_environment, settings
from mstxkit.errors import CaptureError

VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_HCCL_TRACE_BUFFER_SIZE")


@pytest.fixture(autouse=True)
def _nobody_has_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "TORCH_NCCL_TRACE_BUFFER_SIZE", "MSTXKIT_RINGS"):
        monkeypatch.delenv(name, raising=False)


def seen() -> list[str | None]:
    return [os.environ.get(name) for name in VARIABLES]


def test_they_are_on_while_it_captures(run: Path) -> None:
    with mstxkit.capture(run, rings=True):
        during, passed_on = seen(), ray_environment.pick_variables(os.environ)

    assert during == ["512", "512"]
    assert passed_on["MSTXKIT_RINGS"] == "1"
    assert (seen(), "MSTXKIT_RINGS" in os.environ) == ([None, None], False)


def test_by_default_nothing_is_switched_on(run: Path) -> None:
    with mstxkit.capture(run):
        assert seen() == [None, None]


def test_what_a_user_has_set_is_never_overridden(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[0], "7")
    with mstxkit.capture(run, rings=128):
        during = seen()

    assert (during, seen()) == (["7", "128"], ["7", None])


def test_a_process_that_records_by_its_environment_does_so_too(tmp_path: Path) -> None:
    program = f"import mstxkit, os; mstxkit.capture(); print([os.environ.get(n) for n in {VARIABLES!r}])"

    assert lives.run(program, MSTXKIT_RUN=str(tmp_path / "run"), MSTXKIT_RINGS="1").strip() == "['512', '512']"


@pytest.mark.parametrize("rings", [2, -1, 1 << 20, "on", 1.5])
def test_what_is_no_size_is_refused(rings: object) -> None:
    with pytest.raises(CaptureError, match="rings="):
        settings.resolve_settings({}, {"rings": rings})
