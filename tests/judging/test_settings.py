"""Settings have names, and are changed by them."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

from mstxkit.errors import MstxkitError
from mstxkit.judging import settings
from mstxkit.triggers.slow_rank import SlowRank


def test_a_setting_is_changed_by_its_name_and_the_others_stay() -> None:
    before = settings.default_settings()
    after = settings.change_setting(before, "slow_rank.effect", "0.15")

    assert after.of(SlowRank).effect == 0.15
    assert before.of(SlowRank).effect == SlowRank().effect
    assert {**after.as_json(), "slow_rank.effect": SlowRank().effect} == before.as_json()


@pytest.mark.parametrize("name", ["slow_rank", "slow_rank.effects", "", "gates.", "no.such"])
def test_a_name_that_there_is_not_is_told_with_all_there_are(name: str) -> None:
    with pytest.raises(MstxkitError, match=r"there are .*slow_rank\.effect"):
        settings.change_setting(settings.default_settings(), name, "1")


@pytest.mark.parametrize("text", ["99", "-1", "nan", "inf", "a lot", "", "0x1", "1e999"])
def test_a_value_that_is_not_allowed_is_told_with_what_is(text: str) -> None:
    with pytest.raises(MstxkitError, match=r"from 0\.01 to 10 is needed"):
        settings.change_setting(settings.default_settings(), "slow_rank.effect", text)


def test_whole_numbers_stay_whole() -> None:
    assert settings.change_setting(settings.default_settings(), "gates.warm_up", "7").as_json()["gates.warm_up"] == 7
    with pytest.raises(MstxkitError, match="a whole number"):
        settings.change_setting(settings.default_settings(), "gates.warm_up", "7.5")


def test_what_comes_from_a_message_is_taken_as_far_as_it_is_allowed() -> None:
    values = {"slow_rank.effect": 0.2, "slow_rank.clip": "evil", "no.such": 1, "gates.warm_up": -5}

    assert settings.of_json(values).as_json() == {**settings.default_settings().as_json(), "slow_rank.effect": 0.2}


def test_every_setting_is_described_and_its_default_is_allowed() -> None:
    for setting in settings.describe_settings():
        assert setting.meaning.endswith(".")
        assert setting.least <= setting.default <= setting.most
        settings.change_setting(settings.default_settings(), setting.name, str(setting.default))
