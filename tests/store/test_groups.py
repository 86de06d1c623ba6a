"""Words that name ranks by what they are: one form of each, several by commas, and everything else refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstxkit.store import groups
from mstxkit.store.groups import Group


def test_each_form_is_read() -> None:
    words = "host:node-7.rack, role:actor, dp:3, tp:0-1, pp:last, cp:first, peers:3, 0, 4-5"

    assert groups.groups_in(words) == (
        Group("host", "node-7.rack"), Group("role", "actor"), Group("dp", "3", 3, 3), Group("tp", "0-1", 0, 1),
        Group("pp", "last", -1, -1), Group("cp", "first", 0, 0), Group("peers", "3", 3, 3), Group("ranks", "0"),
        Group("ranks", "4-5", 4, 5),
    )  # fmt: skip


def test_equal_words_are_the_same_whatever_spaces_are_between() -> None:
    assert groups.strip_words(" dp : 3 ,host: a") == groups.strip_words("dp:3,host:a") == "dp:3,host:a"


@pytest.mark.parametrize("ranks", ["all", "suspect+peer", "0,2-5", [0, 1], None, 3])
def test_numbers_and_other_words_are_no_groups(ranks: object) -> None:
    assert not groups.are_groups(ranks)


NO_GROUPS = ["dp:", "dp:x", "dp:3-1", "dp:last-1", "xp:3", ":3", "host:", "peers:last", "dp:3,", "dp:3,all", "a:\n"]


@pytest.mark.parametrize("words", [*NO_GROUPS, "dp:0-9999999", f"host:{'x' * 500}"])
def test_what_is_none_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r"is no|must have"):
        groups.groups_in(words)


@given(st.text())
def test_whatever_it_is_it_is_groups_or_one_error(words: str) -> None:
    try:
        assert groups.groups_in(groups.strip_words(words)) == groups.groups_in(words)
    except ValueError:
        pass
