"""One occurrence of a stage that is to be recorded, and the session that covers it or a sample of it."""

from __future__ import annotations

from dataclasses import dataclass

from .requests import Sample


@dataclass
class Occurrence:
    """One occurrence of a wanted stage, from its entry to its end. The same stage may be entered inside of it again.

    Args:
        stage: Canonical key.
        thread: The thread that entered it; what other threads enter and leave is none of its.
        sample: Which part of it is recorded; None: all.
        depth: How often it is entered.
        passed: Boundaries of the sample's kind that have passed.
        had_session: Was one begun in it? There is one at most.
    """

    stage: str
    thread: int
    sample: Sample | None = None
    depth: int = 1
    passed: int = 0
    had_session: bool = False

    def entered(self, stage: str, thread: int) -> None:
        """A stage was entered."""
        self.depth += (stage, thread) == (self.stage, self.thread)

    def left(self, stage: str, thread: int) -> bool:
        """A stage was left: does this occurrence end with it?"""
        if (stage, thread) != (self.stage, self.thread):
            return False
        self.depth -= 1
        return self.depth <= 0

    def is_sample_start(self, per: str, thread: int) -> bool:
        """A boundary is entered: does the sample begin with it?"""
        is_ours = self.sample is not None and (per, thread) == (self.sample.per, self.thread)
        return is_ours and self.sample is not None and self.passed == self.sample.skip and not self.had_session

    def is_sample_end(self, per: str, thread: int) -> bool:
        """A boundary was left: is the sample complete with it?"""
        if self.sample is None or (per, thread) != (self.sample.per, self.thread):
            return False
        self.passed += 1
        return self.passed >= self.sample.skip + self.sample.record

    def missed(self) -> str:
        """At its end: why there was no session in it, in words; empty where that is no matter of the sample."""
        if self.sample is None or self.had_session or self.passed > self.sample.skip:
            return ""
        return f"{self.stage} was too short for its sample: {self.passed} {self.sample.per}, skip {self.sample.skip}"


@dataclass
class Session:
    """One session, from the order to start it until it is known to be closed.

    Args:
        stage: Of which it covers an occurrence, or a part of one.
        thread: Which started it, and alone may stop it.
        step: The rank's, at its start.
        started_ns: Monotonic clock.
        limit_ns: After so long it is stopped.
        stop_because: Why it is to be stopped early, with the next event of its thread.
        stopping: The order to stop was given.
    """

    stage: str
    thread: int
    step: int | None
    started_ns: int
    limit_ns: int
    stop_because: str = ""
    stopping: bool = False
