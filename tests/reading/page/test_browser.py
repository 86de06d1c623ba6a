"""The page in a real browser: nothing goes wrong in it, nothing is asked of the network, keys and colours work."""

from __future__ import annotations

import re
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Iterator

import pytest

pytest.importorskip("polars")

from builders import browser
from builders.opened_page import Opened, opened_page, written

from mstxkit.testing.simulator import InjectedFault, JobShape

pytestmark = pytest.mark.days("even")

NAME = "梯度 </script><b>x</b>"
CHARTS = ("steps", "saves", "zoom", "heat", "tail", "rate")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    browser.needed()
    folder = tmp_path_factory.mktemp("browser")
    fault = InjectedFault("before", "actor_generate", rank=3, factor=1.8)
    shape = JobShape(ranks=8, is_dispatched=True, tail=0.2)
    return written(folder / "exp7", shape, faults=[fault], steps=50, names={"reward": NAME})


@pytest.fixture(scope="module")
def opened(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with opened_page(file, tmp_path_factory.mktemp("profile")) as page:
        yield page


def test_the_headline_is_read_first(opened: Opened) -> None:
    heading = opened.page.locator("h1").inner_text()

    assert heading == "Rank 3 actor computes more slowly than the others in actor_generate."


def test_every_chart_is_drawn_and_a_hostile_name_is_text_in_it(opened: Opened) -> None:
    for chart in CHARTS:
        opened.drawn(chart)

    names = opened.page.locator("#plot-steps .legendtext").all_text_contents()
    assert any("</script><b>x</b>" in name for name in names), names
    assert opened.page.locator("#plot-steps .legend b").count() == 0


def test_a_click_on_a_step_shows_its_ranges_and_a_key_another_one(opened: Opened) -> None:
    select = opened.page.locator("#zoom")
    options = [int(words.split()[1].strip(",")) for words in select.locator("option").all_text_contents()]
    before = select.input_value()

    opened.click_on_step(0)
    clicked = select.input_value()
    select.focus()
    opened.page.keyboard.press("ArrowDown")

    assert options[int(before)] != options[int(clicked)]
    assert options[int(clicked)] == min(options)
    assert select.input_value() == "1"
    opened.drawn("zoom")
    assert opened.page.evaluate("document.getElementById('plot-zoom').data[0].x.length") > 0


def test_a_click_on_a_step_that_is_not_in_the_page_says_which_one_is_shown(opened: Opened) -> None:
    words = opened.page.locator("#zoom option").all_text_contents()
    kept = [int(option.split()[1].strip(",")) for option in words]
    step = next(number for number in range(50) if number not in kept)

    assert opened.click_on_step(step) == step
    nearest = min(kept, key=lambda other: (abs(other - step), other))
    said = opened.page.locator("#zoom-note").inner_text()
    axis = opened.page.evaluate("document.getElementById('plot-zoom').layout.xaxis.title.text")
    opened.page.locator("#zoom").select_option("0")

    assert said == f"Step {step} is not kept in this page: the nearest that is, step {nearest}, is shown."
    assert axis.startswith("seconds in step ") and int(axis.split()[3]) == nearest
    assert opened.page.locator("#zoom-note").inner_text() == ""


def test_dragging_looks_closer(opened: Opened) -> None:
    plot = opened.drawn("zoom")
    wide = opened.page.evaluate("document.getElementById('plot-zoom').layout.xaxis.range")
    box = plot.locator(".nsewdrag").first.bounding_box()
    y = box["y"] + box["height"] / 2

    opened.page.mouse.move(box["x"] + 0.3 * box["width"], y)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 0.6 * box["width"], y, steps=5)
    opened.page.mouse.up()
    opened.page.wait_for_function(
        "wide => { const r = document.getElementById('plot-zoom').layout.xaxis.range;"
        " return r[1] - r[0] < 0.6 * (wide[1] - wide[0]); }",
        arg=wide,
    )


def test_the_heat_map_shows_waiting_apart_from_slowness(opened: Opened) -> None:
    opened.drawn("heat")
    get = "document.getElementById('plot-heat').data[0].z[3].slice(-20).reduce((a, b) => a + b, 0)"
    slower = opened.page.evaluate(get)

    opened.page.get_by_label("waiting").check()

    assert slower > 20 * 50
    assert opened.page.evaluate(get) < slower / 5


def test_the_first_key_leads_to_the_report_and_all_controls_can_be_reached(opened: Opened) -> None:
    opened.reload()
    opened.page.keyboard.press("Tab")
    focused = "document.activeElement.className || document.activeElement.id"
    first = opened.page.evaluate(focused)
    reached = {first}
    for _ in range(40):
        opened.page.keyboard.press("Tab")
        reached.add(opened.page.evaluate(focused))

    assert first == "skip"
    assert {"theme", "zoom", "stage"} <= reached


def test_dark_and_light_by_the_switch(opened: Opened) -> None:
    get = "getComputedStyle(document.body).backgroundColor"
    light = opened.page.evaluate(get)

    opened.page.locator("#theme").click()
    dark = opened.page.evaluate(get)
    opened.page.locator("#theme").click()

    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(18, 22, 27)")
    assert opened.page.evaluate(get) == light


def test_dark_where_the_system_is(opened: Opened) -> None:
    opened.reload()
    opened.page.emulate_media(color_scheme="dark")
    dark = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    opened.page.emulate_media(color_scheme="light")

    assert dark == "rgb(18, 22, 27)"


def test_nothing_is_wider_than_the_window(opened: Opened) -> None:
    for width in (1280, 1920, 700):
        opened.page.set_viewport_size({"width": width, "height": 900})

        opened.page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
    opened.page.set_viewport_size({"width": 1280, "height": 900})


# By how much texts and drawings of charts are beyond their sides, in pixels.
CUT = """(wide) => Math.max(...[...document.querySelectorAll('.plot:has(svg)')].flatMap((plot) => {
    const own = plot.getBoundingClientRect(), right = Math.min(own.right, own.left + wide);
    return [...plot.querySelectorAll('svg.main-svg, svg text')].flatMap((drawn) => {
      const box = drawn.getBoundingClientRect();
      return box.width ? [own.left - box.left, box.right - right] : [];
    });
  }))"""
PAPER_WIDE = (210 - 2 * 14) / 25.4 * 96


def test_no_chart_is_cut_on_paper_nor_on_a_telephone(opened: Opened) -> None:
    def drawn_again() -> float:
        for chart in CHARTS:
            opened.drawn(chart)
        return float(opened.page.evaluate(CUT, PAPER_WIDE))

    opened.reload()
    drawn_again()
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    on_paper = opened.page.evaluate(CUT, PAPER_WIDE)
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    opened.page.set_viewport_size({"width": 400, "height": 800})
    opened.reload()
    by_hand = drawn_again()
    opened.page.set_viewport_size({"width": 1280, "height": 900})

    assert on_paper <= 1
    assert by_hand <= 1


INK = """[...document.querySelectorAll('#verdict, figcaption, .facts dd'), document.body].map(
    (element) => getComputedStyle(element).color).concat([...document.querySelectorAll('.plot svg text')].map(
    (element) => getComputedStyle(element).fill))"""


# As a PDF has them: --ink, --ground and --soft of page.css.
LIGHT_INK, DARK_INK = (0.0863, 0.098, 0.1137), (0.9098, 0.9255, 0.9451)
DARK_GROUND, DARK_SOFT = (0.0706, 0.0863, 0.1059), (0.6039, 0.651, 0.7059)


def brightest(colors: list[str]) -> float:
    """Of 0 to 255, the mean of its red, green and blue."""
    return max(sum(map(float, re.findall(r"[\d.]+", color)[:3])) / 3 for color in colors)


def inks_of(pdf: bytes) -> set[tuple[float, ...]]:
    """The colours that a PDF fills text and shapes with, each of 0 to 1."""
    inks: set[tuple[float, ...]] = set()
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        with suppress(zlib.error):
            words = zlib.decompressobj().decompress(stream).decode("latin-1")
            inks.update(tuple(map(float, ink)) for ink in re.findall(r"([\d.]+) ([\d.]+) ([\d.]+) rg", words))
    return inks


@pytest.mark.parametrize("by", ["the switch", "the system"])
def test_a_dark_page_prints_dark_on_white(opened: Opened, by: str) -> None:
    opened.page.emulate_media(color_scheme="dark" if by == "the system" else "light")
    opened.reload()
    if by == "the switch":
        opened.page.locator("#theme").click()
    for chart in CHARTS:
        opened.drawn(chart)
    dark = opened.page.evaluate(INK)

    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print")
    printed = opened.page.evaluate(INK)
    opened.page.emulate_media(media="screen")
    opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
    again = opened.page.evaluate(INK)
    opened.page.emulate_media(color_scheme="light")

    assert brightest(dark) > 200
    assert brightest(printed) < 140
    assert again == dark


def test_it_prints_its_charts_and_ink_that_can_be_read(opened: Opened) -> None:
    opened.page.emulate_media(color_scheme="dark")
    opened.reload()
    pdf = opened.page.pdf()
    inks = inks_of(pdf)
    opened.page.emulate_media(color_scheme="light")

    assert len(pdf) > 50_000
    assert LIGHT_INK in inks
    assert not inks & {DARK_INK, DARK_GROUND, DARK_SOFT}


def test_nothing_went_wrong_and_nothing_was_asked_of_the_network(opened: Opened) -> None:
    """The last of them: after all that was done before."""
    assert opened.trouble == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == []
