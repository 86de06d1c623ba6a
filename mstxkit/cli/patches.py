"""`mstxkit patches [FRAMEWORK…]`: which targets the installed frameworks hold; by `--import`, what becomes of each."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional

import typer

from ..patching.declare import EXTRA, Patch
from ..patching.report import APPLIED, FAILED, STATES, WAITING, TargetState
from ..patching.sheet import YAML_SUFFIXES
from ..patching.symbols import HELD
from . import WRONG_USE, _show

_NAMES_HELP = "Import roots, name+extra, or .yaml files of targets; each of its targets is shown. Without: all known."


class Support(NamedTuple):
    """What one framework's installed version takes of its patch.

    Args:
        framework: Import root.
        has_extra: Is the extra tier asked for?
        version: Of the installed distribution; "" where there is a source tree only, None where nothing is installed.
        targets: Every target with its state.
        error: Why the process that imported it did not come to an end, or "".
    """

    framework: str
    has_extra: bool
    version: str | None
    targets: list[TargetState]
    error: str = ""


def patches(
    frameworks: Optional[List[str]] = typer.Argument(None, metavar="[FRAMEWORK]...", help=_NAMES_HELP),  # noqa: UP006,UP045
    import_them: bool = typer.Option(False, "--import", help="Import and patch each, in a process of its own."),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object."),
) -> None:
    """Show what autopatch finds in what is installed here, read from its source without importing it."""
    wanted = _wanted(frameworks or [])
    supported = [_imported(name, patch) if import_them else _read(name, patch) for name, patch in wanted]
    if json:
        rows = [{**one._asdict(), "targets": [state._asdict() for state in one.targets]} for one in supported]
        _show.as_json({"frameworks": rows})
        return
    console = _show.console()
    console.print(_summary(supported, import_them))
    for one in supported:
        if frameworks and one.version is not None:
            console.print()
            console.print(_details(one))


def _wanted(names: list[str]) -> list[tuple[str, Patch]]:
    """Patches by the names that they are asked for with; ends the command where one is unknown or wrong."""
    from ..errors import PatchError
    from ..patching import frameworks, targets
    from ..report.escape import for_terminal

    try:
        return [
            (name, targets.read(name) if name.endswith(YAML_SUFFIXES) else frameworks.chosen((name,))[0][0])
            for name in names or frameworks.known()
        ]
    except PatchError as exc:
        for line in str(exc).splitlines():
            typer.echo(f"mstxkit: {for_terminal(line)}", err=True)
        raise typer.Exit(WRONG_USE) from None


def _read(name: str, patch: Patch) -> Support:
    import os

    from ..patching.frameworks import has_extra
    from ..patching.symbols import installed, spec_of

    folder = os.getcwd()
    is_whole = has_extra(name) or name.endswith(YAML_SUFFIXES)
    if spec_of(patch.framework, folder) is None:
        return Support(patch.framework, is_whole, None, [])
    return Support(patch.framework, is_whole, _version(patch.framework), installed(folder).states(patch))


def _version(framework: str) -> str:
    from ._checks import installed

    return installed(framework) or ""


def _imported(name: str, patch: Patch) -> Support:
    from . import _importing

    found = _read(name, patch)
    if found.version is None:
        return found
    states, error = _importing.in_a_process(name)
    return found._replace(targets=states, error=error)


def _summary(supported: list[Support], is_imported: bool) -> Any:
    from rich.table import Table

    from ..report.escape import for_rich

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("framework", "version", *(STATES if is_imported else ("core", "extra"))):
        table.add_column(column)
    table.add_column("", overflow="fold")
    for one in supported:
        counts = _counts(one) if is_imported else [_held(one, is_extra=False), _held(one, is_extra=True)]
        texts = [one.framework, one.version or "source", *counts, one.error]
        not_there = [one.framework, "not installed", *([""] * (len(texts) - 2))]
        table.add_row(*(for_rich(text) for text in (not_there if one.version is None else texts)))
    return table


def _counts(one: Support) -> list[str]:
    return [str(sum(target.state == state for target in one.targets)) for state in STATES]


def _held(one: Support, is_extra: bool) -> str:
    tier = [target.state == HELD for target in one.targets if (target.tier == EXTRA) is is_extra]
    return f"{sum(tier)} of {len(tier)}" if tier else "–"


def _details(one: Support) -> Any:
    from rich.table import Table

    from ..report.escape import for_rich

    styles = {APPLIED: "green", HELD: "green", FAILED: "bold red"}
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("state", f"target of {one.framework}", "stage"):
        table.add_column(column, no_wrap=True)
    table.add_column("why", overflow="fold")
    modules: dict[str, list[TargetState]] = {}
    for target in one.targets:
        modules.setdefault(target.path.partition(":")[0], []).append(target)
    for module, targets in modules.items():
        error = next((target.detail for target in targets if target.state == WAITING), "")
        table.add_row("", for_rich(module, style="bold"), "", for_rich(error))
        for target in targets:
            state = for_rich(target.state, style=styles.get(target.state, "yellow"))
            qualname = for_rich(f"  {target.path.partition(':')[2]}")
            why = "" if target.state == WAITING and error else _why(one, target)
            table.add_row(state, qualname, for_rich(target.stage or ""), for_rich(why))
    return table


def _why(one: Support, target: TargetState) -> str:
    if target.state == HELD and target.tier == EXTRA and not one.has_extra:
        return f"off unless {one.framework}+extra is asked for"
    return target.reason + (f" ({target.detail})" if target.detail else "")
