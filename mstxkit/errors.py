"""The errors a user of mstxkit can catch: raised while configuring, starting or reading, never by a range."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple


class MstxkitError(Exception):
    """Base of every error that mstxkit raises on purpose: its message says what is wrong, where, and what to do."""


class MissingPackageError(MstxkitError):
    """A package is not installed that recording does not need. `name`: as it is imported; `what`: what needs it."""

    # The extra of mstxkit that brings it.
    EXTRAS = {
        **dict.fromkeys(("numpy", "polars", "zstandard"), "report"),
        **dict.fromkeys(("prometheus_client", "opentelemetry", "google"), "metrics"), "torch": "torch", "ray": "ray",
    }  # fmt: skip

    def __init__(self, name: str | None, what: str = "this") -> None:
        super().__init__(f"{what} needs {name}: pip install 'mstxkit[{self.EXTRAS.get(name or '', 'report')}]'")


class CaptureError(MstxkitError):
    """The recorder could not be started: the run folder or the live file cannot be used."""


class SettingError(CaptureError):
    """A setting of `capture` cannot be what it is.

    Attributes:
        name: Of the setting.
        shown: What was given, as the message shows it.
        wanted: What it can be.
        origin: Where it can have been given.
    """

    def __init__(self, name: str, shown: str, wanted: str, origin: str = "") -> None:
        super().__init__(name, shown, wanted, origin)
        self.name, self.shown, self.wanted = name, shown, wanted
        self.origin = origin or f"capture or MSTXKIT_{name.upper()}"

    def __str__(self) -> str:
        return f"{self.name}={self.shown} (of {self.origin}): {self.wanted}"


class PatchError(MstxkitError):
    """A framework or a target that was asked for is unknown, or is declared wrongly."""


class Problem(NamedTuple):
    """One thing that is wrong in a configuration.

    Args:
        file: Where it was given, as the user named it.
        line: From 1; None where the source has no lines.
        key: Full name of the key in the source.
        value: What was given; None where nothing was, or where the key itself is wrong.
        why: What is wrong with it.
        allowed: The values or names that it may have.
    """

    file: str
    line: int | None
    key: str
    value: Any
    why: str
    allowed: tuple[str, ...] = ()

    def __str__(self) -> str:
        import difflib  # not where marking starts: it loads four modules more

        place = self.file if self.line is None else f"{self.file}:{self.line}"
        shown = "" if self.value is None else f"={shorten_value(self.value)}"
        wanted = str(self.key.rpartition(".")[2] if self.value is None else self.value)
        is_word = isinstance(self.value, (str, type(None))) and wanted not in self.allowed
        near = difflib.get_close_matches(wanted, self.allowed, n=1) if is_word else []
        advice = f"; did you mean {near[0]}?" if near else ""
        choices = f"{advice or ';'} allowed: {', '.join(self.allowed)}" if self.allowed else ""
        return f"{place}: {self.key}{shown}: {self.why}{choices}"


class ConfigError(MstxkitError):
    """A configuration is wrong. The message holds everything that is wrong in one source, a line each.

    Attributes:
        problems: The single problems; empty where the source could not be read at all.
    """

    def __init__(self, message: str, problems: Iterable[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> ConfigError:
        """One error of these problems, in the order of their lines."""
        by_text = {str(problem): problem for problem in problems}
        ordered = sorted(by_text.values(), key=lambda problem: (problem.line or 0, problem.key))
        return cls("\n".join(map(str, ordered)), ordered)


class ReadError(MstxkitError):
    """A path holds nothing that can be read as a run."""


class FormatError(MstxkitError):
    """A file, or a part of one, is damaged or was not written by mstxkit.

    Attributes:
        offset: Byte offset of the damage in its file, where known.
    """

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class NewerVersionError(FormatError):
    """A file was written by a newer mstxkit than this one."""


class StandInError(MstxkitError):
    """The stand-in CANN libraries could not be built, or a script under them could not be run."""


def shorten_value(value: Any, at_most: int = 80) -> str:
    """A value as a message shows it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= at_most else f"{text[: at_most - 1]}…"
