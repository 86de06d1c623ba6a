"""Names made safe: no name is refused, none is mistaken for another, and every device tool takes what it is given."""

from __future__ import annotations

import enum
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mstxkit.host import names

LONG = 10 << 20
# CANN's collector, torch_npu's trace view and mspti; see the module's docstring.
REJECTED_FIRST = "\0=+-@"
PRUNED = ("CANN", "AscendCL", "Runtime", "GE", "Node", "Model", "Hccl", "acl_to_npu", "Communication@")
COLLECTOR_TAKES_BYTES, MSPTI_TAKES_BYTES = 155, 254

characters = st.characters() | st.characters(categories=["Cs"]) | st.sampled_from("\0\n=+-@\x7f\x1b\U0001f600")
texts = st.text(characters, max_size=300) | st.builds(
    lambda begin, rest: begin + rest, st.sampled_from(PRUNED), st.text(characters)
)


class Text(str):
    """What it shows of itself is none of our business."""

    def __str__(self) -> str:
        raise RuntimeError("a __str__ of the program's")


class Colour(str, enum.Enum):
    RED = "red"


# The recorder's name


@given(st.text(max_size=4096 // 4))
def test_a_text_without_surrogates_is_kept_whole(text: str) -> None:
    assert names.utf8(text).decode() == text


@given(texts)
def test_lone_surrogates_become_readable(text: str) -> None:
    assert names.utf8(text) == text.encode("utf-8", "backslashreplace")


@pytest.mark.parametrize("character", ["a", "é", "世", "\U0001f600", "\udc80", "\0", "\n"])
@pytest.mark.parametrize("length", [682, 683, 1_024, 1_025, 2_048, 4_096, 4_097, 5_000])
def test_no_text_is_longer_than_the_limit(character: str, length: int) -> None:
    whole = (character * length).encode("utf-8", "backslashreplace")

    kept = names.utf8(character * length)

    assert len(kept) <= names.TEXT_LIMIT_BYTES
    assert (kept == whole) is (len(whole) <= names.TEXT_LIMIT_BYTES)
    kept.decode()


@given(st.text(characters, min_size=1, max_size=50), st.integers(1, 500), st.integers(40, 200))
def test_a_cut_text_ends_in_its_full_length_and_digest(text: str, times: int, limit: int) -> None:
    whole = (text * times).encode("utf-8", "backslashreplace")
    kept = names.utf8(text * times, limit)

    begin, mark, tail = kept.rpartition(b"...[")

    assert len(kept) <= limit
    if len(whole) > limit:
        assert mark and tail.startswith(b"%d bytes, " % len(whole))
        assert whole.startswith(begin)
    begin.decode()


def test_long_names_that_differ_only_at_their_end_stay_apart() -> None:
    one, other = "x" * 5_000 + "1", "x" * 5_000 + "2"

    assert names.utf8(one) != names.utf8(other)
    assert names.utf8(one) == names.utf8("x" * 5_000 + "1")


@given(st.text(max_size=30), st.integers(0, 130))
def test_a_cut_never_splits_a_character(text: str, limit: int) -> None:
    kept = names.cut_text(text.encode(), limit)

    assert len(kept) <= limit
    assert text.startswith(kept.decode())
    assert len(text.encode()) <= limit or len(text[: len(kept.decode()) + 1].encode()) > limit


@pytest.mark.parametrize("character", ["x", "世", "\udc80", "\0"])
def test_a_name_of_ten_megabytes_is_cut(character: str) -> None:
    text = character * (LONG // len(names.utf8(character)))
    found = names.describe_site(text, text, text)

    assert len(found.name) <= names.TEXT_LIMIT_BYTES
    assert len(found.domain) <= names.TEXT_LIMIT_BYTES
    assert found.stage is not None and len(found.stage.encode()) <= names.TEXT_LIMIT_BYTES
    assert len(found.message.encode()) <= COLLECTOR_TAKES_BYTES
    assert len(found.message_domain) <= MSPTI_TAKES_BYTES


@pytest.mark.parametrize("name", ["", "\0", "a\0b", "line\nline\r", "\udc80", "@", "=cmd", "CANN"])
def test_the_recorder_keeps_every_name_whole(name: str) -> None:
    assert names.describe_site(name, None, "default").name == name.encode("utf-8", "backslashreplace")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "<NoneType>"), (5, "<int>"), (b"bytes", "<bytes>"), (["a"], "<list>"), (object(), "<object>"),
        (float("nan"), "<float>"), (str, "<type>"), (Text("kept"), "kept"), (Colour.RED, "red"),
        (mock.Mock(spec=str), "<Mock>"), (type("\x1b[31m", (), {})(), "<\x1b[31m>"),
    ],
    ids=lambda _: "",
)  # fmt: skip
def test_what_is_no_text_becomes_its_types_name_and_a_text_is_itself(value: Any, text: str) -> None:
    assert names.as_text(value) == text
    assert type(names.as_text(value)) is str
    assert names.describe_site(value, value, value)[:3] == (
        text.encode(),
        text.encode(),
        None if value is None else text,
    )


def test_a_type_that_hides_its_name_has_one_all_the_same() -> None:
    class Nameless(type):
        @property
        def __name__(cls) -> str:
            raise RuntimeError("a __name__ of the program's")

    class Odd(metaclass=Nameless):
        pass

    assert names.describe_site(Odd(), None, "default").name == b"<Odd>"


@given(texts | st.integers() | st.none() | st.binary(), texts | st.none() | st.floats(), texts | st.booleans())
def test_a_description_never_raises_and_has_only_what_engines_take(name: Any, stage: Any, domain: Any) -> None:
    found = names.describe_site(name, stage, domain)

    assert [type(part) for part in found[:2] + found[3:]] == [bytes, bytes, str, str]
    assert found.stage is None if stage is None else type(found.stage) is str
    for text in (found.name.decode(), found.domain.decode(), found.stage or "", found.message, found.message_domain):
        text.encode()


# The message for device tools


@given(texts)
@example("")
@example("\0")
@example("\n" * 200)
@example("+" * 200)
@example("GE" + "世" * 60)
def test_every_device_tool_takes_every_message(text: str) -> None:
    message = names.safe_message(text)
    raw = message.encode()

    assert 0 < len(raw) <= names.MESSAGE_LIMIT_BYTES < COLLECTOR_TAKES_BYTES
    assert message[0] not in REJECTED_FIRST
    assert not message.startswith(PRUNED)
    assert not any(ord(c) < 32 or ord(c) == 127 for c in message)


@given(texts)
def test_a_safe_message_stays_as_it_is(text: str) -> None:
    once = names.safe_message(text)

    assert names.safe_message(once) == once


@pytest.mark.parametrize(
    "text", ["step", "actor_update", "a b", "é", "世界", "x" * 150, "geo", "model", "hccl", "node"]
)
def test_a_message_that_is_safe_is_not_changed(text: str) -> None:
    assert names.safe_message(text) == text


@pytest.mark.parametrize("begin", [*PRUNED, *REJECTED_FIRST[1:]])
def test_a_message_that_would_vanish_gets_another_beginning(begin: str) -> None:
    assert names.safe_message(begin + "tail") == f"r:{begin}tail"


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "unnamed"), ("\0", "_"), ("a\nb\tc", "a_b_c"), ("\x1b[2J", "_[2J"), ("\udc80", "_"), ("\x7f", "_")],
)
def test_what_cannot_be_printed_is_replaced(text: str, message: str) -> None:
    assert names.safe_message(text) == message


@pytest.mark.parametrize("character", ["a", "é", "世", "\U0001f600"])
@pytest.mark.parametrize("shift", range(4))
def test_a_long_message_is_cut_between_characters_and_says_so(character: str, shift: int) -> None:
    text = "x" * shift + character * 200

    message = names.safe_message(text)

    assert message.endswith("...")
    assert text.startswith(message[:-3])
    assert names.MESSAGE_LIMIT_BYTES - 4 < len(message.encode()) <= names.MESSAGE_LIMIT_BYTES


# Domains


@given(texts)
@example("default" + "x" * 300)
@example("")
def test_every_device_tool_takes_every_domain(text: str) -> None:
    domain = names.safe_domain(text)

    assert domain.isascii() and domain.replace("_", "a").isalnum()
    assert len(domain) <= names.DOMAIN_LIMIT_BYTES <= MSPTI_TAKES_BYTES
    assert domain == "default" if text == "default" else not domain.startswith("default")
    assert names.safe_domain(domain) == domain


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("default", "default"), ("engine", "engine"), ("Engine_2", "Engine_2"), ("a.b-c d", "a_b_c_d"), ("世", "_"),
        ("", "unnamed"), ("\0", "_"), ("defaulted", "d_defaulted"), ("default2", "d_default2"), ("\udc80", "_"),
    ],
)  # fmt: skip
def test_a_domain_keeps_what_it_can(text: str, domain: str) -> None:
    assert names.safe_domain(text) == domain
