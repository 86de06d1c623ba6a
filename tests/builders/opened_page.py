"""A page of a run, opened in a browser by a test."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

from builders import browser
from builders.simulated_runs import recorded_job

from mstxkit.reading.page import writing
from mstxkit.reading.report import summary as summaries
from mstxkit.reading.run import open_run

OPTIONS = {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}}


def written(run: Path, *of_job: Any, **more: Any) -> Path:
    """The page of a run of a simulated job, as `recorded_job` makes it; beside it."""
    opened, page = open_run(recorded_job(run, *of_job, **more)), run.with_name("page.html")
    writing.write_page(opened, summaries.summarise_run(opened), page)
    return page


class Opened:
    """A page in the browser, with what it said and asked for."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.requests, self.trouble = page, [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("console", lambda message: self.trouble.append(message.text) if message.type == "error" else None)
        page.goto(url)
        page.wait_for_selector("html[data-ready]", state="attached")

    def reload(self) -> None:
        self.page.reload()
        self.page.wait_for_selector("html[data-ready]", state="attached")

    def drawn(self, chart: str) -> Any:
        self.page.locator(f"#plot-{chart}").scroll_into_view_if_needed()
        self.page.wait_for_selector(f"#plot-{chart} .main-svg", state="attached")
        return self.page.locator(f"#plot-{chart}")

    def click_on_step(self, place: int) -> int:
        """Click with the mouse on the bar of the step at that place; its number."""
        plot = self.drawn("steps")
        self.page.evaluate("document.getElementById('plot-steps').scrollIntoView({behavior: 'instant'})")
        self.page.evaluate("window.scrollBy({top: -80, behavior: 'instant'})")
        numbers = self.page.evaluate("document.getElementById('plot-steps').data[0].x")
        boxes = [bar.bounding_box() for bar in plot.locator(".barlayer .trace .point").all()]
        box = max((box for box in boxes[place :: len(numbers)] if box), key=lambda box: box["height"])
        at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.page.mouse.move(*at)
        self.page.mouse.click(*at)
        return int(numbers[place])


@contextmanager
def opened_page(page: Path, profile: Path, **options: Any) -> Iterator[Opened]:
    """In a browser with a profile of its own: light, unless options say otherwise."""
    with browser.browsing(profile, **{**OPTIONS, **options}) as context:
        yield Opened(context.new_page(), page.as_uri())
