"""Attributes as the Python twin writes them: typed values, with texts kept once a bank. No value of any type raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence

from ...host import names
from ...store import livefile, records

if TYPE_CHECKING:
    from .banks import Bank

utf8: Callable[[str], bytes] = names.utf8
on_cut: Callable[[], None] = lambda: None  # noqa: E731
on_fault: Callable[[str, BaseException], None] = lambda where, exc: None  # noqa: E731

_type_name: Callable[[type], str] = type.__dict__["__name__"].__get__


def encode(bank: Bank, values: Sequence[tuple[str, object]]) -> tuple[list[tuple[int, int]], int]:
    """(w0, w1) of each attribute whose texts found room in the bank, and the bytes of all texts that were needed."""
    encoded: list[tuple[int, int]] = []
    needed = 0
    for key, value in values:
        try:
            value_type, bits, text = _plain(value)
            key_id, text_bytes = text_id(bank, key)
            needed += text_bytes
            if text is not None:
                bits, text_bytes = text_id(bank, text)
                needed += text_bytes
        except Exception as exc:
            on_fault("attributes", exc)
            continue
        if key_id and (bits or text is None):
            encoded.append((bits, key_id | value_type << 32))
    return encoded, needed


def _plain(value: Any) -> tuple[int, int, str | None]:
    """(type, bits, None), or (type, 0, text) for what needs a text. Subclasses are taken as what they derive from."""
    kind = type(value)  # not `isinstance`, which asks the value itself
    if issubclass(kind, str):
        return records.TEXT, 0, str.__str__(value)
    if issubclass(kind, int) and kind is not bool:
        value = int.__add__(value, 0)
    elif issubclass(kind, float):
        value = float.__pos__(value)
    elif kind is not bool:
        return records.OTHER, 0, _type_name(kind)
    plain = records.value_bits(value)
    return (records.OTHER, 0, _type_name(kind)) if plain is None else (*plain, None)


def text_id(bank: Bank, text: str) -> tuple[int, int]:
    """The id of a text in this bank, 0 where there is no room for it, and the bytes it takes there."""
    text = str.__str__(text)
    known_id = bank.texts.get(text)
    if known_id is not None:
        return known_id, 0
    raw = utf8(text)
    text_bytes = len(raw) + 8 + livefile.TRAILER.size
    new_id = len(bank.texts) + 1
    if not bank.put_text(livefile.TEXT, new_id, raw):
        return 0, text_bytes
    bank.texts[text] = new_id
    if was_cut(text, raw):
        on_cut()
    return new_id, text_bytes


def was_cut(text: str, raw: bytes) -> bool:
    """Is `raw` shorter than the whole text?"""
    return len(text) > names.TEXT_LIMIT_BYTES // 4 and len(text.encode("utf-8", "backslashreplace")) > len(raw)
