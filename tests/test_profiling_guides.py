"""The page on the systems' own guides: each line has its test, what is done in part says why, each option is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("typer")

from builders import quickstart

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/guide/profiling_guides.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "tests/config/guides"
ITEMS = re.findall(r"^- .*(?:\n  .*)*", PAGE, re.MULTILINE)


def test_each_line_of_a_guide_has_a_test_and_what_is_done_in_part_says_why() -> None:
    assert len(ITEMS) > 40
    assert [item for item in ITEMS if not re.search(r"`test_\w+`", item)] == []
    assert [item for item in ITEMS if "◑" in item and "because" not in item.partition("◑")[2]] == []


def test_each_command_and_option_is_there() -> None:
    codes = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", PAGE)]
    commands = [shlex.split(code) for code in codes if code.startswith("mstxkit ")]
    options = [["mstxkit", "escalate", *shlex.split(code)] for code in codes if code.startswith("--")]

    assert len(commands) > 8 and len(options) > 5
    assert [words for words in [*commands, *options] if quickstart.not_there(words)] == []


@pytest.mark.parametrize("example", ["mindspeed_rl_options.yaml", "mindspeed_llm_detailed.sh"])
def test_every_option_of_a_guides_example_is_on_the_page(example: str) -> None:
    text = (EXAMPLES / example).read_text(encoding="utf-8").replace("-", "_")
    options = set(re.findall(r"\bprofile_[a-z_]+\b|(?<=__)profile_[a-z_]+", text)) - {"profile_dir_with_stack"}

    assert len(options) > 8
    assert [option for option in sorted(options) if f"`{option}" not in PAGE] == []
