"""The quick starts are short and in the index, and all they name is there. Tests of real loops run their commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("polars")

from builders import quickstart
from builders.contracts import expected, surface

from mstxkit.patching import registry
from mstxkit.testing import captured

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(page.stem for page in quickstart.PAGES.glob("*.md") if page.stem != "README")
WORDS_AT_MOST = 300
# What is shown of these is compared with recorded sources of this release.
BY_SOURCES = {"mindspeed_rl": "master-05a90d7", "sglang": "0.5.23"}
every_page = pytest.mark.parametrize("page", PAGES)


def text_of(page: str) -> str:
    return (quickstart.PAGES / f"{page}.md").read_text(encoding="utf-8")


def ours(page: str) -> list[list[str]]:
    return [words for words in quickstart.commands(page) if words[0] == "mstxkit"]


@every_page
def test_a_page_is_read_in_two_minutes(page: str) -> None:
    assert len(text_of(page).split()) <= WORDS_AT_MOST


def test_the_index_has_every_page_and_both_readmes_have_the_index() -> None:
    index = text_of("README")

    assert [page for page in PAGES if f"]({page}.md)" not in index] == []
    for readme in ("README.md", "README.zh-CN.md"):
        assert "](docs/quickstart/README.md)" in (ROOT / readme).read_text(encoding="utf-8")


@every_page
def test_each_page_installs_starts_looks_and_asks_for_more(page: str) -> None:
    verbs = [words[1] for words in ours(page)]

    assert quickstart.commands(page)[0] == ["pip", "install", ".[report]"]
    assert {"run", "report", "escalate"} <= set(verbs)
    assert re.search(r"^## .*\?$", text_of(page), re.MULTILINE)
    assert quickstart.shown(page)


@every_page
def test_each_command_has_options_and_values_that_there_are(page: str) -> None:
    assert {" ".join(words): wrong for words in ours(page) if (wrong := quickstart.not_there(words))} == {}


def held(page: str) -> dict[str, str | None]:
    """Names of the ranges that the recorded release has of which the page speaks, with their stages."""
    recorded = surface.recorded(f"{page}-{BY_SOURCES[page]}")
    declared = expected.expected(recorded, registry.load_patch(page), has_extra=False)
    targets = [one.target for one in declared if one.is_applied]
    return {target.name or target.qualname: target.stage for target in targets}


@pytest.mark.parametrize("page", BY_SOURCES)
def test_what_is_said_to_be_found_the_recorded_release_holds(page: str) -> None:
    lines = "".join(quickstart.blocks(page, "text")).splitlines()
    named = dict(line.split()[1:] for line in lines if line.startswith("held "))

    assert named
    assert named.items() <= held(page).items()


def test_the_ranges_that_are_shown_of_mindspeed_llm_are_of_its_patch() -> None:
    """They are Megatron's, which the recorded sources leave out."""
    shown = quickstart.shown("mindspeed_llm")
    ranges = shown[shown.index("ranges,") + 1 :][:3]

    assert set(ranges) <= {target.name or target.qualname for target in registry.load_patch("mindspeed_llm").targets}


@pytest.mark.parametrize("page", BY_SOURCES)
def test_a_page_names_the_release_of_which_it_speaks(page: str) -> None:
    assert BY_SOURCES[page].rpartition("-")[2] in text_of(page)


@pytest.mark.parametrize("page", ["mindspeed_llm", "mindspeed_rl", "mindspore", "sglang", "verl", "vllm"])
def test_a_page_says_what_nobody_has_run(page: str) -> None:
    assert re.search(r"Nobody has run .*\bon an NPU\b", text_of(page), re.DOTALL)


@pytest.mark.parametrize("page", ["mindspore", "torch"])
def test_the_lines_that_go_into_a_loop_record_its_steps(page: str) -> None:
    (code,) = quickstart.blocks(page, "python")
    batches = [1, 2, 3]
    with captured() as seen:
        exec(code, {"loader": batches, "dataset": batches, "train": lambda batch: batch})

    first = seen.ranges[0].step or 0
    assert [(one.stage, one.step) for one in seen.ranges] == [("train_step", first + number) for number in range(3)]
