"""Names made safe, once per call site: whole for the recorder, within mstx's limits for the device tools.

Source of the mstx limits: CANN collector `mstx_inject.cpp` and `mstx_data_handler.cpp` (hicann/runtime 681ef7610): the
first character must not be one of NUL = + - @, messages are kept below 156 bytes; mspti: domain names are at most 254
bytes, compared by prefix, and anything that begins with "default" is taken for the default domain. torch_npu 2.13.0
`_trace_view_parser.py`: at Level0 every event whose name begins with one of `_PRUNED_PREFIXES` vanishes from the text
trace.
"""

from __future__ import annotations

import re
import sys
from types import FunctionType
from typing import Any, Callable, NamedTuple

from .. import faults

TEXT_LIMIT_BYTES = 4096
MESSAGE_LIMIT_BYTES = 150
DOMAIN_LIMIT_BYTES = 200
DEFAULT_DOMAIN = "default"
# What a decorator without a name is given in its place. Nothing else that is no str is called.
FUNCTIONS = (FunctionType, staticmethod, classmethod)

_PRUNED_PREFIXES = ("CANN", "AscendCL", "Runtime", "GE", "Node", "Model", "Hccl", "acl_to_npu", "Communication@")
_REJECTED_FIRST = "=+-@"
type_name: Callable[[type], str] = type.__dict__["__name__"].__get__  # whatever a metaclass makes of `__name__`
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
# How many names each module was the first to use.
_made: dict[str, int] = {}
_MAY_YIELD = 0x20 | 0x200  # flags of a generator's code, and an async generator's


class Description(NamedTuple):
    """What an engine keeps of a call site."""

    name: bytes
    domain: bytes
    stage: str | None
    message: str
    message_domain: str


def describe_site(name: object, stage: object, domain: object) -> Description:
    """All forms of a site's name, which is new. Never raises: what is not a str becomes its type's name."""
    frame: Any = sys._getframe(1)  # the nearest of a module that is not one of ours; None: there is none
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("mstxkit."):
        frame = frame.f_back
    module = "?" if frame is None else str(frame.f_globals.get("__name__"))
    _made[module] = _made.get(module, 0) + 1
    if frame is not None and stage is not None and frame.f_code.co_flags & _MAY_YIELD:
        from . import idioms

        idioms.look_at_stage(as_text(stage), frame)
    text, domain_text = as_text(name), as_text(domain)
    key = None if stage is None else utf8(as_text(stage)).decode()
    return Description(utf8(text), utf8(domain_text), key, safe_message(text), safe_domain(domain_text))


def tell_of_too_many(mark: Callable[..., None], catch_all: str) -> None:
    """A name came when there was no room for it: log once who made most of them, and leave a mark for the report."""
    module, count = max(_made.copy().items(), key=lambda made: made[1], default=("?", 0))
    faults.warn_once(
        "names",
        f"too many names: new ones are recorded as {catch_all!r}, those of stages as their stage. {count} were made by "
        f"{module}: what differs from call to call belongs into attributes, as in mstx_range('rollout', request=7)",
    )
    mark(catch_all, module=module, names=count)


def tell_of_too_many_stages(key: str) -> None:
    """The same of a stage."""
    faults.warn_once(
        "stages",
        f"too many stages: {key[:80]!r} and others from now on are ranges, and no stages. A stage has one key in all "
        "steps: what differs belongs into attributes, as in stage('rollout', request=7)",
    )


def as_text(value: Any) -> str:
    """`value` itself if it is a str, else its type's name in angle brackets."""
    # Of its type, not of what `__class__` claims; and never by a `__str__` of the program's.
    return str.__str__(value) if issubclass(type(value), str) else f"<{type_name(type(value))}>"


def utf8(text: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> bytes:
    """UTF-8 without surrogates; a longer text is cut and ends in its full length and digest: two of them stay apart."""
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= limit_bytes:
        return raw
    import hashlib  # only names of 4 KiB need it

    tail = f"...[{len(raw)} bytes, {hashlib.blake2b(raw, digest_size=6).hexdigest()}]".encode()
    return cut_text(raw, limit_bytes - len(tail)) + tail


def cut_text(raw: bytes, limit_bytes: int) -> bytes:
    """The longest prefix of UTF-8 `raw` within the limit that does not split a character."""
    return raw[:limit_bytes].decode("utf-8", "ignore").encode()


def safe_message(text: str) -> str:
    """A message every mstx consumer takes: printable, not empty, at most 150 bytes, no rejected or pruned beginning."""
    text = _UNPRINTABLE.sub("_", text[: 4 * MESSAGE_LIMIT_BYTES]) or "unnamed"
    if text[0] in _REJECTED_FIRST or text.startswith(_PRUNED_PREFIXES):
        text = "r:" + text
    raw = text.encode()
    return text if len(raw) <= MESSAGE_LIMIT_BYTES else cut_text(raw, MESSAGE_LIMIT_BYTES - 3).decode() + "..."


def safe_domain(text: str) -> str:
    """A domain name of `[0-9A-Za-z_]` that no consumer takes for the default domain."""
    if text == DEFAULT_DOMAIN:
        return text
    safe = re.sub(r"[^0-9A-Za-z_]", "_", text[:DOMAIN_LIMIT_BYTES]) or "unnamed"
    return ("d_" + safe)[:DOMAIN_LIMIT_BYTES] if safe.startswith(DEFAULT_DOMAIN) else safe
