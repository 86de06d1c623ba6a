"""The picture of the page that the guide and the README show: of a simulated run, in a browser. `make recording`."""

from __future__ import annotations

import tempfile
from contextlib import chdir
from pathlib import Path

from builders import browser
from builders.simulated_runs import recorded_job
from builders.top_recording import IMAGES

from mstxkit.reading.page import writing
from mstxkit.reading.report import summary as summaries
from mstxkit.reading.run import open_run
from mstxkit.testing.simulator import InjectedFault, JobShape

WIDE, HIGH = 1280, 1480


def main() -> int:
    """Make it anew."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("runs").mkdir()
        fault = InjectedFault("before", "actor_generate", rank=5, factor=1.8, since=20)
        shape = JobShape(ranks=16, is_dispatched=True)
        run = open_run(recorded_job(Path("runs/exp7"), shape, faults=[fault], steps=60))
        page = Path(folder) / "page.html"
        writing.write(run, summaries.summarise(run), page)
        _photograph(page, Path(folder))
    return 0


def _photograph(page: Path, folder: Path) -> None:
    options = {"color_scheme": "light", "viewport": {"width": WIDE, "height": HIGH}}
    with browser.browsing(folder / "profile", **options) as context:
        shown = context.new_page()
        shown.goto(page.as_uri())
        shown.wait_for_selector("html[data-ready]", state="attached")
        for chart in ("steps", "zoom"):
            shown.locator(f"#plot-{chart}").scroll_into_view_if_needed()
            shown.wait_for_selector(f"#plot-{chart} .main-svg", state="attached")
        shown.evaluate("window.scrollTo(0, 0)")
        shown.screenshot(path=str(IMAGES / "report.png"))


if __name__ == "__main__":
    raise SystemExit(main())
