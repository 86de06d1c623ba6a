"""The judge's table of docs/guide/settings.md, made from its settings; as a script, it writes the table there.

PYTHONPATH=. python tests/builders/settings_page.py
"""

from __future__ import annotations

from pathlib import Path

from mstxkit.judging import settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "settings.md"


def judge() -> str:
    """One row for each setting of whoever judges."""
    rows = ["| setting | default | allowed | meaning |", "|---|---|---|---|"]
    for one in settings.describe_settings():
        rows.append(f"| `{one.name}` | {one.default:g} | {one.least:g}–{one.most:g} | {one.meaning} |")
    return "\n".join(rows) + "\n"


def with_table(text: str) -> str:
    """The page with its table as it is now."""
    head, _, rest = text.partition("<!-- judge -->\n")
    return f"{head}<!-- judge -->\n{judge()}{rest[rest.index('<!-- end -->') :]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
