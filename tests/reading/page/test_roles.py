"""The page of a job with two roles: what is of one of them alone is said of that one, and can be chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest

pytest.importorskip("polars")

from builders import browser
from builders.opened_page import Opened, opened_page, written

from mstxkit.testing.simulator import InjectedFault, JobShape

ROLLOUT, ACTOR = "0", "1"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an async job: a rollout is slow, so that its role comes first; only the trainers wait for each other."""
    browser.needed()
    folder = tmp_path_factory.mktemp("roles")
    slow = InjectedFault("before", "actor_generate", rank=6, factor=2.0)
    shape = JobShape(ranks=4, rollouts=4, is_async=True)
    return written(folder / "async", shape, faults=[slow], steps=40)


@pytest.fixture(scope="module")
def browsed(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with opened_page(file, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def opened(browsed: Opened) -> Opened:
    browsed.reload()
    return browsed


def words(opened: Opened, section: str) -> str:
    return str(opened.page.locator(f"#{section}").inner_text())


def lanes(opened: Opened) -> Any:
    opened.drawn("zoom")
    return opened.page.evaluate("document.getElementById('plot-zoom').layout.yaxis.ticktext")


def test_who_is_late_of_another_role_than_the_first_is_shown_once_that_is_chosen(opened: Opened) -> None:
    """Only the trainers wait for each other."""
    assert opened.page.locator("#role option").all_text_contents() == ["rollout", "actor"]
    assert "Who held up the others" not in words(opened, "who")

    opened.page.select_option("#role", ACTOR)
    said = words(opened, "who")
    opened.page.select_option("#role", ROLLOUT)

    assert "Who held up the others" in said and "Lateness, mean of the steps" in said
    assert "Lateness" not in words(opened, "who")


def test_tables_and_labels_are_of_the_chosen_role(opened: Opened) -> None:
    def told() -> list[Any]:
        rows = """[...document.querySelectorAll('#steps tbody')]
            .filter((body) => !body.closest('[hidden]')).map((body) => body.textContent)"""
        label = opened.page.get_attribute("#plot-steps", "aria-label")
        return [*opened.page.evaluate(rows), label]

    first = told()
    opened.page.select_option("#role", ACTOR)
    other = told()

    assert len(first) == len(other) == 2
    assert "actor_generate" in first[0]
    assert "actor_update" in other[0]
    assert "actor_update" in other[1]
    assert first[1] != other[1]


def test_a_step_closely_is_of_the_chosen_role(opened: Opened) -> None:
    assert set(lanes(opened)) <= {f"rank {rank}" for rank in (4, 5, 7)} | {"<b>rank 6 ◂</b>"}

    opened.page.select_option("#role", ACTOR)

    assert lanes(opened) == [f"rank {rank}" for rank in range(4)]
    assert "the slowest" in opened.page.locator("#zoom option:checked").inner_text()


@pytest.mark.parametrize("role", [ROLLOUT, ACTOR])
def test_a_click_on_a_step_of_a_role_shows_the_nearest_of_that_role(opened: Opened, role: str) -> None:
    opened.page.select_option("#role", role)
    options = [int(words.split()[1].strip(",")) for words in opened.page.locator("#zoom option").all_text_contents()]

    clicked = opened.click_on_step(8)

    nearest = min(options, key=lambda step: abs(step - clicked))
    assert options[int(opened.page.locator("#zoom").input_value())] == nearest
    assert len(lanes(opened)) == 4
    assert ("rank 0" in lanes(opened)) == (role == ACTOR)


def test_nothing_went_wrong(opened: Opened) -> None:
    """The last of them: after all that was done before."""
    assert opened.trouble == []


def test_a_stage_has_one_colour_whatever_chart_and_role_shows_it(opened: Opened) -> None:
    tones = (
        """(plot) => Object.fromEntries(document.getElementById(plot).data.map((of) => [of.name, of.marker.color]))"""
    )
    in_steps, closely = {}, {}
    for role in (ROLLOUT, ACTOR):
        opened.page.select_option("#role", role)
        in_steps[role], closely[role] = (opened.page.evaluate(tones, plot) for plot in ("plot-steps", "plot-zoom"))
    stages = {"actor_generate", "actor_update"} & {*in_steps[ROLLOUT], *in_steps[ACTOR]}

    assert len(stages) == 2
    for stage in stages:
        seen = {some[role].get(stage) for some in (in_steps, closely) for role in (ROLLOUT, ACTOR)} - {None}
        assert len(seen) == 1
