"""The marking names under MSTXKIT_OFF=1: nothing is recorded, no engine is loaded, decorators return what they get."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..host import names
from . import state


class OffSite(NamedTuple):
    """A call site in a process that records nothing; it travels on to other processes like any other."""

    name: str
    stage: str | None = None
    domain: str = "default"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return state.site, tuple(self)


class OffRange:
    """A range that does nothing, shared by all."""

    __slots__ = ()

    def __enter__(self) -> OffRange:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    async def __aenter__(self) -> OffRange:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    def __call__(self, function: Any) -> Any:
        """As a decorator: `function` itself."""
        return function

    def set(self, /, **attributes: object) -> None:
        """Nothing."""


class OffSpan:
    """What `opened` gives here: pieces run as they are."""

    __slots__ = ()

    def drive(self, piece: Any) -> Any:
        """`piece` itself."""
        return piece

    def close(self, error: object = None) -> None:
        """Nothing."""


_RANGE, _SPAN = OffRange(), OffSpan()


def mstx_range(name: Any = None, /, **options: object) -> Any:
    """A range that is not recorded; of a function, as a decorator without a name, that itself."""
    return name if type(name) in names.FUNCTIONS else _RANGE


stage = mstx_range


def mark(message: object, /, **options: object) -> None:
    """Nothing."""


def step(n: object = None) -> None:
    """No step is counted: None."""


def at_step(n: object) -> OffRange:
    """A context without effect."""
    return _RANGE


def current_stage() -> None:
    """None."""


def current_step() -> None:
    """None."""


def intern(name: str, stage: str | None = None, domain: str = "default") -> OffSite:
    """A call site, when a wrapper made in another process arrives here."""
    return OffSite(name, stage, domain)


def is_on(site: object) -> bool:
    """False."""
    return False


def timed(site: object, stream: object = None, attributes: object = None) -> OffRange:
    """A range that is not recorded."""
    return _RANGE


def driven(site: object, body: Any, stream: object = None, attributes: object = None) -> Any:
    """`body` itself."""
    return body


def opened(site: object, stream: object = None, attributes: object = None) -> OffSpan:
    """A span that is not recorded."""
    return _SPAN


def stored(owner: object, path: object) -> Any:
    """Nothing is read."""
    return NotImplemented


def add_cost(site: object, ns: int) -> None:
    """Nothing costs anything."""


def recording() -> bool:
    """False."""
    return False
