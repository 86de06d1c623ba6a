"""Makes hooks for `set_watch` that write down what they are told, and what they are told of."""

from __future__ import annotations

from typing import Any, Callable, Iterator


class Watcher:
    """Hooks that write down what they are told, and do what a test asks for besides."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.told: list[Any] = []
        self.at_entry: Callable[[], object] = lambda: None
        self.at_end: Callable[[], object] = lambda: None

    def entered(self, site: Any, may_move: bool) -> None:
        self.told.append(("entered", site.name, may_move))
        self.at_entry()

    def left(self, site: Any, failed: bool) -> None:
        self.told.append(("left", site.name, failed))
        self.at_end()

    def stepped(self, step: int) -> None:
        self.told.append(step)

    def set(self, on: bool = True) -> Watcher:
        self.engine.set_watch(self.entered, self.left, self.stepped)
        self.engine.watch(on)
        return self

    def clear(self) -> None:
        self.engine.watch(False)
        self.engine.set_watch(None, None, None)

    @property
    def entries(self) -> list[tuple[str, bool]]:
        """(name, may_move) of each entry."""
        return [told[1:] for told in self.told if told[0] == "entered"]

    @property
    def ends(self) -> list[tuple[str, bool]]:
        """(name, failed) of each end."""
        return [told[1:] for told in self.told if told[0] == "left"]


class Mine(Exception):
    """What a body raises."""


def marked(engine: Any, name: str) -> Any:
    """A site without a stage that is watched. That is for the life of the process: each test has names of its own."""
    site = engine.intern(name)
    engine.watch_site(site)
    return site


def once(engine: Any, site: Any) -> None:
    with engine.timed(site):
        pass


def generator() -> Iterator[int]:
    """A body of two turns."""
    yield 1
    yield 2
