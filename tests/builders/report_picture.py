"""The picture of the page that the guide and the README show: of a simulated run, in a browser. `make recording`."""

from __future__ import annotations

import tempfile
from contextlib import chdir
from pathlib import Path

from builders.opened_page import opened_page, written
from builders.top_recording import IMAGES

from mstxkit.testing.simulator import InjectedFault, JobShape

WIDE, HIGH = 1280, 1480


def main() -> int:
    """Make it anew."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("runs").mkdir()
        fault = InjectedFault("before", "actor_generate", rank=5, factor=1.8, since=20)
        page = written(Path("runs/exp7"), JobShape(ranks=16, is_dispatched=True, tail=0.2), faults=[fault], steps=60)
        _photograph(page.resolve(), Path(folder))
    return 0


def _photograph(page: Path, folder: Path) -> None:
    with opened_page(page, folder / "profile", viewport={"width": WIDE, "height": HIGH}) as opened:
        for chart in ("steps", "zoom"):
            opened.drawn(chart)
        opened.page.evaluate("window.scrollTo(0, 0)")
        opened.page.screenshot(path=str(IMAGES / "report.png"))


if __name__ == "__main__":
    raise SystemExit(main())
