"""A real browser without a window, for tests of pages: Debian's chromium, through playwright; one for all tests."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import pytest

OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def needed() -> str:
    """The browser's path; the test is left out where there is none."""
    pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    return path


@contextmanager
def browsing(profile: Path, **options: Any) -> Iterator[Any]:
    """A context of playwright's with a profile of its own."""
    path = needed()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile), executable_path=path, headless=True, args=list(OPTIONS), **options
        )
        context.set_default_timeout(60_000)
        try:
            yield context
        finally:
            context.close()
