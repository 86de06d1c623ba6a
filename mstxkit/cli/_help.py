"""The help: everyday verbs first; of a verb at most eight options at `--help`, every one at `--help-all`.

Which options are of rare use its verb says: those are hidden ones.
"""

from __future__ import annotations

import copy
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__

ALL = "--help-all"
_EVERYDAY = ("run", "status", "report", "top", "escalate", "compare", "export", "import", "doctor", "profiles")


class VerbsInOrder(TyperGroup):
    """The verbs: what people type every day first, the others by their names."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order in which they are shown."""
        return [*(verb for verb in _EVERYDAY if verb in self.commands), *sorted({*self.commands} - {*_EVERYDAY})]


class VerbCommand(TyperCommand):
    """A verb as typer has it, which also takes `--help-all`."""

    _all: Any = None

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, with that for help as the last one that is shown."""
        params: list[Any] = super().get_params(ctx)
        own_help = params[-1]
        rare = sum(getattr(param, "hidden", False) for param in params)
        more: Any = self._all or copy.copy(own_help)  # of its kind, which versions of typer do not make alike
        self._all, more.name, more.opts, more.hidden, more.callback = more, "help_all", [ALL], True, _show_all
        own_help.help = f"Show this, and end; {ALL} shows {rare} options more." if rare else "Show this, and end."
        return [*params, more]


def _show_all(ctx: typer.Context, param: Any, is_asked: bool) -> None:
    if is_asked:
        for option in ctx.command.params:
            option.hidden = False  # type: ignore[attr-defined]
        typer.echo(ctx.get_help())
        ctx.exit()


def show_version(is_asked: bool) -> None:
    """End with it, before a verb is missed."""
    if is_asked:
        typer.echo(f"mstxkit {__version__}")
        raise typer.Exit


def take_options(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=show_version, help="Show the version and exit."
    ),
) -> None:
    """The options that stand before a verb."""
