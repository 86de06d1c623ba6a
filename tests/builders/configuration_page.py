"""The lists of docs/guide/configuration.md, made from the model and the adapters; as a script, it writes them there.

PYTHONPATH=. python tests/builders/configuration_page.py
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from mstxkit.config import adapters
from mstxkit.config.model import Budgets, Config, ConfigLimits, Sampling, Window

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "configuration.md"
GROUPS = {"window": Window, "sampling": Sampling, "limits": ConfigLimits, "budgets": Budgets}


def fields() -> str:
    """One item for each canonical field."""
    rows: list[str] = []
    for name, field in Config.model_fields.items():
        group = GROUPS.get(name)
        if group is None:
            rows.append(row(name, field))
        else:
            rows += [row(f"{name}.{below}", one) for below, one in group.model_fields.items()]
    return "\n".join(rows) + "\n"


def row(name: str, field: FieldInfo) -> str:
    default = "–" if field.is_required() else f"`{shown(field.get_default(call_default_factory=True))}`"
    text = f"- `{name}` ({values(field.annotation)}; {default}): {' '.join((field.description or '').split())}"
    return textwrap.fill(text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else '""' if value == "" else str(value)


def values(annotation: Any) -> str:
    """A type in words, without its limits."""
    if annotation in (bool, int, str):
        return {bool: "flag", int: "number", str: "text"}[annotation]
    text = re.sub(r"Annotated\[([^,\[\]]+), [^\]]*\]", r"\1", str(annotation).replace("typing.", ""))
    if words := re.findall(r"'([^']+)'", text):
        return ", ".join(dict.fromkeys(words)) + (", or a list" if "tuple" in text and "all" in words else "")
    for part, word in (
        ("dict", "mapping"),
        ("tuple", "list"),
        ("bool", "flag"),
        ("int", "number"),
        ("float", "number"),
    ):
        if part in text:
            return word
    return "text"


def flavours() -> str:
    """One item for each adapter."""
    rows = [f"- `{name}`: {adapter.DESCRIPTION}" for name, adapter in adapters.by_flavour().items()]
    return "\n".join(rows) + "\n"


def with_tables(text: str) -> str:
    """The page with its tables as they should be: each stands between two comments."""
    for name, table in (("flavours", flavours()), ("fields", fields())):
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda one, t=table: one[1] + t + one[2], text, flags=re.S
        )
    return text


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
