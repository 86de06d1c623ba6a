"""docs/guide/settings.md names every setting of `capture` and of the judge, with the default that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mstxkit
from mstxkit.bootstrap import settings
from mstxkit.cli import _checks

PAGE = Path(mstxkit.__file__).resolve().parents[1] / "docs" / "guide" / "settings.md"
OF_A_CONFIGURATION = {"planned"}


def shown(default: object) -> str:
    return "none" if default is None else f"{default:g}" if isinstance(default, float) else str(default)


def test_every_setting_of_capture_is_there_with_its_default() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    limits, of_requests = settings.RecorderLimits(), settings.DutySettings()
    defaults = {name: shown(value) for name, value in {**limits._asdict(), **of_requests._asdict()}.items()}

    assert dict(rows) == {name: text for name, text in defaults.items() if name not in OF_A_CONFIGURATION}
    assert len(rows) == len(dict(rows))


def test_every_variable_that_is_no_setting_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert [name for name in (*_checks.VARIABLES, *_checks.HANDED_ON) if f"`MSTXKIT_{name}`" not in text] == []


def test_the_table_of_the_judge_is_as_its_settings_are() -> None:
    """Run `PYTHONPATH=.:tests python tests/builders/settings_page.py` to write it anew."""
    pytest.importorskip("numpy")
    from builders import settings_page

    page = PAGE.read_text(encoding="utf-8")

    assert settings_page.with_table(page) == page
