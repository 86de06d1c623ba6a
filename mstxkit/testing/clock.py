"""A clock that stands still until a test moves it."""

from __future__ import annotations

from ..engine.choose import engine
from ..errors import CaptureError

_FAKE = 4


class FakeClock:
    """Within its block every range begins and ends at the times a test sets; outside it is as it was.

    The clock comes first: it cannot change while the recorder runs.

    Args:
        start_ns: Where it stands at first; 0 or more.

    Example:
        >>> from mstxkit import mstx_range
        >>> from mstxkit.testing import FakeClock, captured
        >>> with FakeClock() as clock, captured() as seen:
        ...     with mstx_range("wait"):
        ...         clock.advance(1_000)
        >>> seen.ranges[0].duration_ns
        1000
    """

    def __init__(self, start_ns: int = 1_000_000_000) -> None:
        self._now_ns = start_ns
        self._kind_before = 0

    def __enter__(self) -> FakeClock:
        """Take the engine's clock over.

        Raises:
            CaptureError: the recorder runs already, in a capture or in `captured()`.
        """
        kind = engine.clock_kind()
        try:
            engine.set_clock(_FAKE)
        except ValueError as exc:
            raise CaptureError(f"{exc}: stop the capture first, or enter FakeClock() before captured()") from exc
        self._kind_before = kind
        engine.set_fake_ticks(self._now_ns)
        return self

    def __exit__(self, *error: object) -> None:
        engine.set_clock(self._kind_before)

    @property
    def now_ns(self) -> int:
        """Where the clock stands."""
        return self._now_ns

    def advance(self, ns: int) -> None:
        """Move on by `ns`, which may be negative, as a stepped clock does.

        Args:
            ns: How far.
        """
        self._now_ns += ns
        engine.set_fake_ticks(self._now_ns)
