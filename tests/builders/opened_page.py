"""A page of a run, opened in a browser by a test."""

from __future__ import annotations

from typing import Any


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
