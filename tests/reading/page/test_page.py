"""The page as a file: it says what the report says, is small, and nothing of a run becomes part of its HTML."""

from __future__ import annotations

import base64
import gzip
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("polars")

from builders.run_files import BankFiles, ProcessFiles, new_run
from builders.simulated_runs import recorded_job

from mstxkit.errors import MstxkitError
from mstxkit.reading.page import document, writing
from mstxkit.reading.report import step_words, text
from mstxkit.reading.report import summary as summaries
from mstxkit.reading.report.choice import read_choice
from mstxkit.reading.report.number_table import write_percent
from mstxkit.reading.report.units import write_duration
from mstxkit.reading.run import open_run
from mstxkit.testing.simulator import InjectedFault, JobShape

pytestmark = pytest.mark.days("even")

HOSTILE = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", '"><svg/onload=alert(3)>', "a'b\"c&amp;",
    "\u202egnp.exe", "梯度同步", "🧪 step", "עברית", "<!--", "]]>", "${7*7}", "x" * 100_000, "=cmd()", "\x1b[31mred",
)  # fmt: skip


def made(path: Path, folder: Path | None = None) -> tuple[str, dict[str, Any]]:
    run = open_run(path)
    summary = summaries.summarise_run(run)
    return writing.make_page(run, summary, folder or path.parent), summary


def own(page: str) -> str:
    """The page without plotly, which is the same in each."""
    return re.sub(r'(id="plotly">)[A-Za-z0-9+/=]+', r"\1", page)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    fault = InjectedFault("before", "actor_generate", rank=3, factor=1.8)
    path = tmp_path_factory.mktemp("page") / "exp7"
    return made(recorded_job(path, JobShape(ranks=8, is_dispatched=True, tail=0.2), faults=[fault], steps=50))


def test_the_page_begins_with_the_verdict_why_what_it_saves_and_what_next(slow: tuple[str, dict[str, Any]]) -> None:
    page, summary = slow
    head = summary["headline"]

    body = html.unescape(page[page.index("<main") :])

    assert head["verdict"] == "Rank 3 actor computes more slowly than the others in actor_generate."
    places = [body.index(words) for words in (head["verdict"], head["cost"][1:], head["why"][1:], head["next"])]
    assert places == sorted(places)
    assert body.index(head["next"]) < body.index('id="steps"')


def test_text_json_and_page_say_the_same(slow: tuple[str, dict[str, Any]]) -> None:
    from rich.console import Console

    page, summary = slow
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(text.render_report(summary, everything=True))
    printed = console.export_text()

    document_json = json.loads(json.dumps(summary, default=str))

    assert document_json["schema"] == summaries.SCHEMA
    for words in (document_json["headline"]["cost"], document_json["headline"]["next"]):
        assert words in printed
        assert html.escape(words[1:]) in page
    body = own(html.unescape(page))
    said = " ".join(printed.split())
    tail, rate = document_json["tails"][0], document_json["throughput"][0]
    for words in (step_words.describe_tail(tail)[1:], step_words.write_number(rate["tokens_per_s"])):
        assert words in body
        assert words in said
    for row in document_json["what_if"][:2]:
        assert step_words.describe_saving(row) in said
        assert f"<td>{step_words.describe_change(row)}</td>" in body
    for row in (document_json["held_up_by"][0], document_json["resharding"][0]):
        assert write_duration(row.get("wait_ns", row.get("last_ns"))) in body
        assert write_duration(row.get("wait_ns", row.get("last_ns"))) in said
    for row in document_json["critical_path"][:3]:
        assert f"{write_percent(row['ratio'])} {step_words.name_place(row)}" in body
        assert f"{write_percent(row['ratio'])} {step_words.name_place(row)}" in said


def test_all_that_it_needs_is_in_it_and_only_its_own_scripts_may_run(slow: tuple[str, dict[str, Any]]) -> None:
    page, _ = slow
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])  # type: ignore[index]
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    packed = re.findall(r'<script type="application/gzip" id="plotly">(.*?)</script>', page)
    scripts += [gzip.decompress(base64.b64decode(each)).decode() for each in packed]

    assert not re.search(r'(?:src|href)="(?!#)', own(page))
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert all(document.sign_script(script) in policy for script in scripts)
    assert (len(packed), len(scripts)) == (1, 2) and len(policy.split("sha256-")) == 3


def test_every_chart_has_words_and_every_section_a_heading(slow: tuple[str, dict[str, Any]]) -> None:
    page, _ = slow

    assert re.findall(r'class="plot" id="plot-(\w+)" role="img" aria-label="[^"]{20,}"', page) == re.findall(
        r'data-chart="(\w+)"', page
    )
    for key, title, _ in document.SECTIONS:
        assert f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{title}</h2>' in page
    assert page.count("<h1") == 1
    assert '<main id="main"' in page
    assert '<nav aria-label="Sections">' in page


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_a_run_are_text_and_nothing_else(tmp_path: Path, name: str) -> None:
    run = new_run(tmp_path / "run")
    for rank in range(2):
        bank = BankFiles()
        for step in range(4):
            bank.range("inner", step * 10**9, step * 10**9 + 10**8, stage=name[:2000], step=step, depth=1)
            at = step * 10**9
            bank.range(name[:2000], at, at + (rank + 1) * 10**8, stage=name[:2000], own=True, step=step, tokens=3)
        role = name[:200].replace("\n", " ")
        ProcessFiles(run, 100 + rank, rank=rank, host=name[:60].replace("/", "_"), role=role).seal(bank)

    page, _ = made(run)

    assert len(re.findall(r"<script\b", page)) == len(re.findall(r"</script", page)) == 3
    if "<" in name:
        assert name not in own(page)
    assert "\u202e" not in page
    assert "\x1b" not in own(page)
    json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]


def test_names_that_people_write_are_shown_as_they_are(tmp_path: Path) -> None:
    bank = BankFiles().range("梯度同步 🧪", 0, 10**9, stage="梯度同步 🧪", own=True, step=0, tokens=2)
    ProcessFiles(new_run(tmp_path / "运行"), 100, rank=0).seal(bank)

    page, _ = made(tmp_path / "运行")

    assert "<bdi>梯度同步 🧪</bdi>" in page
    assert "<title>运行" in page


@pytest.mark.parametrize("ranks", [1, 2, 64])
def test_a_page_stays_below_six_megabytes_however_many_ranks(tmp_path: Path, ranks: int) -> None:
    page, _ = made(recorded_job(tmp_path / "run", JobShape(ranks=ranks), steps=12))

    assert len(page.encode()) <= 6_000_000


def test_a_page_stays_below_one_megabyte_also_with_ten_thousand_hostile_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four roles, and each range has a name of its own that is six times as long where it is escaped."""
    path, hostile = new_run(tmp_path / "run"), "<>&" * 14
    for rank in range(48):
        bank = BankFiles()
        for step in range(6):
            begin, stage = step * 10**9, f"{hostile}{rank % 4}"
            for call in range(40):
                at = begin + call * 10**6
                bank.range(f"{call}.{step}.{rank}{hostile}", at, at + 10**6 - call, stage=stage, step=step, depth=1)
            bank.range(stage, begin, begin + 10**8, stage=stage, own=True, step=step, tokens=5)
        ProcessFiles(path, 100 + rank, rank=rank, role=f"role{rank % 4}").seal(bank)
    run = open_run(path)
    summary = summaries.summarise_run(run)

    page = writing.make_page(run, summary, tmp_path)
    monkeypatch.setattr(writing, "BYTES_AT_MOST", 10**9)
    whole = writing.make_page(run, summary, tmp_path)

    assert len(whole.encode()) > 1_000_000 >= len(page.encode())
    assert len(json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])["roles"]) == 4  # type: ignore[index]
    assert re.search(r"Of their ranges the \d+ longest in a step are shown", page)


def test_a_page_that_is_too_large_is_drawn_more_coarsely_until_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(recorded_job(tmp_path / "run", JobShape(ranks=64), steps=50))
    summary = summaries.summarise_run(run)

    def heat(page: str) -> dict[str, Any]:
        data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
        return {"shape": data["roles"][0]["heat"][0]["slower"]["s"], "rows": len(data["roles"][0]["rows"])}

    whole = writing.make_page(run, summary, tmp_path)
    monkeypatch.setattr(writing, "BYTES_AT_MOST", len(whole.encode()) - 1)
    smaller = writing.make_page(run, summary, tmp_path)
    monkeypatch.setattr(writing, "BYTES_AT_MOST", 0)
    coarsest = writing.make_page(run, summary, tmp_path)

    assert heat(whole) == {"shape": [64, 50], "rows": 64}
    assert heat(coarsest) == {"shape": [16, 40], "rows": 16}
    assert len(coarsest.encode()) < len(smaller.encode()) < len(whole.encode())
    assert "each column is the mean of up to 2 steps" in coarsest


def test_runs_of_nothing_and_of_one_range_have_a_page(tmp_path: Path) -> None:
    empty, single = new_run(tmp_path / "empty"), new_run(tmp_path / "single")
    ProcessFiles(single, 100, rank=0).seal(BankFiles().range("gen", 0, 0, stage="gen", own=True))

    pages = [made(path)[0] for path in (empty, single)]

    assert all("No step was counted" in page for page in pages)


def test_damage_is_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    path = recorded_job(tmp_path / "run", JobShape(ranks=4), steps=10)
    victim = sorted((path / "sealed").iterdir())[1]
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])

    page, summary = made(path)

    assert summary["damage"]
    assert "places could not be read" in page
    assert victim.name in page


def test_clocks_an_hour_apart_break_nothing(tmp_path: Path) -> None:
    from builders.run_files import anchor

    run = new_run(tmp_path / "run")
    for rank in range(3):
        bank = BankFiles()
        for step in range(5):
            bank.range("gen", step * 10**9, step * 10**9 + 10**8, stage="gen", own=True, step=step)
        process = ProcessFiles(run, 100 + rank, rank=rank, host=f"host{rank}")
        process.anchors = (anchor(0, 0, offset_ns=10**18 + rank * 3600 * 10**9),)
        process.seal(bank)

    page, _ = made(run)

    assert "</html>" in page


def test_a_profile_is_linked_to_only_where_it_lies_in_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "profiles/a b").mkdir(parents=True)
    (run / "out").symlink_to("/etc")

    assert writing._link_to(run, "profiles/a b", tmp_path) == "run/profiles/a%20b/"
    assert writing._link_to(run, "out", tmp_path) == ""
    assert writing._link_to(run, "../..", tmp_path) == ""
    assert writing._link_to(run, "gone", tmp_path) == ""


def test_steps_that_are_asked_for_can_be_looked_at_closely(tmp_path: Path) -> None:
    run = open_run(recorded_job(tmp_path / "run", JobShape(ranks=2), steps=10))
    choice = read_choice("4:5", None, None, None)

    page = writing.make_page(run, summaries.summarise_run(run, choice), tmp_path, choice)

    assert re.findall(r'<option value="\d">(step \d+)', page) == ["step 4", "step 5"]


def test_what_was_asked_for_is_told_with_what_is_of_it(tmp_path: Path) -> None:
    run = open_run(recorded_job(tmp_path / "run", JobShape(ranks=2), steps=10))

    def told(*asked: str | None) -> str:
        choice = read_choice(*asked)
        page = html.unescape(writing.make_page(run, summaries.summarise_run(run, choice), tmp_path, choice))
        return "".join(re.findall(r'<p class="chosen">(.*?)</p>', page))

    assert told() == ""
    assert told("4:5", "0") == "“A step takes” is of steps 4 to 5; ranks 0 only; all else is of the whole run."
    assert told(None, None, "actor_update") == (
        "stages actor_update: these choose what the report as text and as JSON shows; this page is of the whole run."
    )
    assert told(None, "1", "reward").startswith("“A step takes” is of ranks 1 only; all else is of the whole run.")


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    run = open_run(recorded_job(tmp_path / "run", JobShape(ranks=1), steps=2))
    (tmp_path / "taken").mkdir()

    with pytest.raises(MstxkitError, match="taken cannot be written"):
        writing.write_page(run, summaries.summarise_run(run), tmp_path / "taken")

    assert [path.name for path in tmp_path.iterdir()] == ["run", "taken"] or not list(tmp_path.glob(".*"))


def test_what_can_be_copied_is_a_command(slow: tuple[str, dict[str, Any]]) -> None:
    page, summary = slow

    (copied,) = re.findall(r'<code id="next-command">(.*?)</code> <button type="button" id="copy">', page)
    assert html.unescape(copied) == summary["headline"]["next"]
    assert "Copy" not in document._write_first({**summary, "headline": {**summary["headline"], "next": ""}})
