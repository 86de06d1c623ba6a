"""What holds for every page: its lines are short, its links lead somewhere, and who names a page names one there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders import real_files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PARTS = ("docs", "examples", "mstxkit", "tests", "benchmarks")
COLUMNS_AT_MOST = 120
ARCHITECTURE_WORDS_AT_MOST = 1500


def files(*suffixes: str) -> list[Path]:
    below = [path for part in PARTS for suffix in suffixes for path in (ROOT / part).rglob(f"*{suffix}")]
    return sorted([*ROOT.glob("*.md"), *below])


PAGES = [path for path in files(".md") if path.suffix == ".md"]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """What a link may name on a page, as GitHub makes it of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", files(".md", ".c", ".h", ".pyi"), ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_are_short(path: Path) -> None:
    """Tables too. ruff does the same for Python."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)

    assert [number for number, line in lines if len(line) > COLUMNS_AT_MOST] == []


@every_page
def test_links_lead_to_something(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)\s]*)\)", page.read_text(encoding="utf-8"))
    missing = []
    for target in targets:
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            missing.append(target)

    assert missing == []


def test_pages_that_code_names_are_there() -> None:
    ours = r"\bdocs/(?:guide|internals|decisions|quickstart|[a-z]+\.md)[\w/-]*(?:\.md|\.png)?"
    named = {
        (str(path.relative_to(ROOT)), name)
        for path in [*files(".py", ".c", ".h", ".pyi"), ROOT / "Makefile", ROOT / "pyproject.toml"]
        for name in re.findall(ours, _text(path))
    }

    assert [(path, name) for path, name in named if not (ROOT / name).exists()] == []


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["production.md", "profiling_guides.md"])
def test_every_promise_names_a_test_that_is_there(page: str) -> None:
    tests = "".join(_text(path) for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", _text(DOCS / "guide" / page))

    assert len(named) > 20
    assert [name for name in named if f"def {name}(" not in tests] == []


@pytest.mark.parametrize("page", sorted((DOCS / "internals").glob("*.md")), ids=lambda path: path.stem)
def test_modules_that_a_page_for_developers_names_are_there(page: Path) -> None:
    """By their last parts, as the page has them: `apply.py`, `patching/apply.py`."""
    there = [f"/{path.relative_to(ROOT)}" for path in [*ROOT.glob("*.py"), *ROOT.glob(".ci/*.py"), *files(".py", ".c")]]
    named = re.findall(r"`((?:\.?\w+/)*\w+\.(?:py|c))`", _text(page))

    assert [name for name in named if not any(path.endswith(f"/{name}") for path in there)] == []


def test_files_of_a_room_are_in_that_room() -> None:
    """In tables of control.md, each headed by `file below ROOM/`."""
    text = _text(DOCS / "internals" / "control.md")
    tables = re.findall(r"^\| file below `([a-z]+)/` \|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    named = {f"{room}/{name}" for room, rows in tables for name in re.findall(r"`((?:\w+/)?\w+\.py)`", _cells(rows))}

    assert len(named) > 30
    assert [name for name in sorted(named) if not (ROOT / "mstxkit" / name).exists()] == []


def _cells(rows: str) -> str:
    """The first column."""
    return "\n".join(row.split("|")[1] for row in rows.splitlines())


def test_the_guides_index_lists_every_page() -> None:
    index = _text(DOCS / "guide" / "README.md")

    assert [page.name for page in (DOCS / "guide").glob("*.md") if f"]({page.name})" not in index] == ["README.md"]


def test_the_table_of_real_files_is_of_the_commits_that_are_taken() -> None:
    """`make real-files` writes it."""
    shown = _text(real_files.GUIDE).partition(real_files.BEGIN)[2].partition(real_files.END)[0]

    assert {*re.findall(r"^\| (\S+ [0-9a-f]{8}) \|", shown, re.MULTILINE)} == {
        f"{source.name} {source.commit[:8]}" for source in real_files.sources()
    }


def test_the_architecture_can_be_read_in_one_sitting() -> None:
    assert len(_text(DOCS / "internals" / "architecture.md").split()) <= ARCHITECTURE_WORDS_AT_MOST


def test_what_the_architecture_counts_is_as_it_runs() -> None:
    pytest.importorskip("polars")
    from builders import walks

    assert walks.count_walks() in _text(walks.PAGE)
