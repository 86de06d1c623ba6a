"""Attributes as the Python twin writes them: typed values, with texts kept once a bank. No value of any type raises.

Exact plain types are written as they are. For others it asks for `plain_values.settle` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence

from ...host import names
from ...store import livefile, records
from .. import plain_values

if TYPE_CHECKING:
    from .banks import Bank

_TYPES: dict[type, int] = {
    int: records.INT, float: records.FLOAT, bool: records.BOOL, str: records.TEXT, type(None): records.NULL
}  # fmt: skip

utf8: Callable[[str], bytes] = names.utf8
on_cut: Callable[[], None] = lambda: None  # noqa: E731
on_fault: Callable[[str, BaseException], None] = lambda where, exc: None  # noqa: E731


def encode(
    bank: Bank, values: Sequence[tuple[str, object]], is_settled: bool
) -> tuple[list[tuple[int, int]], int] | None:
    """(w0, w1) of each attribute whose texts found room in the bank, and the bytes of all texts that were needed.

    None: they must be settled first. What is not plain then is recorded as its type's name.
    """
    encoded: list[tuple[int, int]] = []
    needed = 0
    for key, value in values:
        try:
            value_type, bits, text = _typed(value)
            if value_type == records.OTHER and not is_settled:
                return None
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


def _typed(value: Any) -> tuple[int, int, str | None]:
    """(type, bits, None), or (type, 0, text) for what needs a text."""
    kind = type(value)
    if kind is str:
        return records.TEXT, 0, value
    is_number = kind is int or kind is float or kind is bool or value is None
    bits = records.value_bits(value) if is_number else None
    return (records.OTHER, 0, plain_values.type_name(kind)) if bits is None else (*bits, None)


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


def define(bank: Bank, key: Any, value: Any) -> bool:
    """Make an attribute known to `bank.kinds`, and its texts to the bank; False where it is not plain, or no room is
    left. Called with `banks.lock`.
    """
    of_kind = next((of_kind for kind, of_kind in bank.kinds.items() if kind is type(value)), None)
    if of_kind is None or type(key) is not str:
        return False
    if key not in of_kind:
        key_id, _ = text_id(bank, key)
        if not key_id:
            return False
        of_kind[key] = attribute_words(bank, key_id | _TYPES[type(value)] << 32)
    return type(value) is not str or text_id(bank, value)[0] != 0


def kinds() -> dict[type, dict[str, tuple[int, int]]]:
    """What a new bank knows of attributes by the type of their value, and by key: nothing."""
    return {kind: {} for kind in _TYPES}


def attribute_words(bank: Bank, w1: int) -> tuple[int, int]:
    """The second word of an attribute, and what is the same in all check bits of such attributes in this bank."""
    return w1, w1 ^ records.ATTRIBUTE << records.KIND_SHIFT ^ bank.salt


def was_cut(text: str, raw: bytes) -> bool:
    """Is `raw` shorter than the whole text?"""
    return len(text) > names.TEXT_LIMIT_BYTES // 4 and len(text.encode("utf-8", "backslashreplace")) > len(raw)
