"""Code in pages of Markdown."""

from __future__ import annotations

import re
from pathlib import Path


def blocks_in(file: Path, language: str) -> list[str]:
    """Its blocks of code in this language, without comments."""
    text = file.read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r" +# .*", "", block) for block in found]
