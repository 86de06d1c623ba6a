"""The canonical model: fixed, strict, documented."""

from __future__ import annotations

import json

import pytest
from builders import configuration_page
from pydantic import ValidationError

from mstxkit.config.model import Config, Window


def test_a_configuration_cannot_be_changed() -> None:
    config = Config()

    with pytest.raises(ValidationError):
        config.level = "level2"  # type: ignore[misc]


@pytest.mark.parametrize(
    "fields",
    [
        {"levl": "level1"},
        {"window": {"first": 3}},
        {"level": "Level1"},
        {"enabled": "true"},
        {"enabled": 1},
        {"ranks": []},
        {"ranks": [-1]},
        {"ranks": ["0"]},
        {"ranks": "none"},
        {"activities": []},
        {"activities": ["gpu"]},
        {"stages": []},
        {"window": {"first_step": 0}},
        {"window": {"first_step": True}},
        {"window": {"steps": 0}},
        {"window": {"steps": 2.0}},
        {"window": {"warmup": -1}},
        {"limits": {"seconds": 0}},
        {"limits": {"bytes": 0}},
        {"sampling": {"per": "token"}},
        {"sampling": {"per": "micro_batch", "record": 0}},
        {"gc_detect_threshold_ms": -1},
        {"gc_detect_threshold_ms": float("inf")},
        {"aic_metrics": "AiCoreNone"},
    ],
    ids=str,
)
def test_what_is_no_such_value_is_refused(fields: dict) -> None:
    with pytest.raises(ValidationError):
        Config.model_validate(fields)


def test_the_schema_describes_every_field_in_words() -> None:
    described = Config.model_json_schema()

    assert set(described["properties"]) == set(Config.model_fields)
    parts = [described, *described["$defs"].values()]
    assert not [name for part in parts for name, one in part["properties"].items() if not one.get("description")]
    json.dumps(described)


def test_a_configuration_as_json_is_the_same_again() -> None:
    config = Config(
        stages=("actor_update",), ranks=(0, 3), window=Window(first_step=7, steps=None), extras={"a": {"b": 1}}
    )

    assert Config.model_validate_json(config.model_dump_json()) == config


def test_a_window_knows_its_last_step_and_the_schedule_that_gives_it() -> None:
    window = Window(first_step=10, steps=3, wait=2, warmup=1)

    assert window.last_step == 12
    assert window.skip_first == 6  # 6 passed over, 2 waited, 1 warmed up: the tenth is recorded
    assert Window(steps=None).last_step is None


def test_the_pages_tables_are_those_of_the_model() -> None:
    """Run `PYTHONPATH=. python tests/builders/configuration_page.py` to write them anew."""
    page = configuration_page.PAGE.read_text(encoding="utf-8")

    assert configuration_page.with_tables(page) == page
    assert "- `window.first_step` (" in page
