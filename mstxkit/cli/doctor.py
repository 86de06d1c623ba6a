"""`mstxkit doctor`: what this installation has, what it lacks, what is set wrongly, and what `autopatch` finds."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional

import typer

from ..errors import PatchError
from ..patching.declare import EXTRA
from ..patching.report import APPLIED, FAILED, STATES, WAITING, TargetState
from ..patching.sheet import YAML_SUFFIXES
from ..patching.symbols import HELD
from ..reading.report.escape import for_rich
from ..store.values import group_by
from . import FOUND_WRONG, WRONG_USE, _checks, _importing, _show

_NAMES_HELP = "With --patches: import roots, name+extra, or .yaml files of targets, each target shown.  [default: all]"


def doctor(
    frameworks: Optional[list[str]] = typer.Argument(None, metavar="[FRAMEWORK]...", help=_NAMES_HELP),
    patches: bool = typer.Option(False, "--patches", help="Instead: what autopatch finds in what is installed here."),
    import_them: bool = typer.Option(False, "--import", help="With --patches: import each, in a process of its own."),
    json: bool = typer.Option(False, "--json", help="Everything as one JSON object."),
) -> None:
    """Check this installation, or what autopatch finds in it.

    Ends with 1 if something is wrong; a note is not wrong. Patches are read from the frameworks' source: nothing is
    imported but with --import.

    Example: mstxkit doctor --patches verl trl
    """
    if not patches and (frameworks or import_them):
        raise typer.BadParameter("frameworks are looked at with --patches", param_hint="--patches")
    if patches:
        show_patches(frameworks or [], import_them, json)
    elif _checks.show_checks(json):
        raise typer.Exit(FOUND_WRONG)


class Support(NamedTuple):
    """What one framework's installed version takes of its patch."""

    framework: str  # import root
    has_extra: bool  # is the extra tier asked for?
    version: str | None  # "" where there is a source tree only, None where nothing is installed
    targets: list[TargetState]
    error: str = ""  # why the process that imported it did not come to an end


def show_patches(frameworks: list[str], import_them: bool, json: bool) -> None:
    """What there is of these, else of all that are known. It is read from the source, but for `import_them`."""
    from ..patching import presence, registry, symbols, targets

    try:
        wanted = [
            (name, targets.read_patch(name) if name.endswith(YAML_SUFFIXES) else registry.choose_patches((name,))[0][0])
            for name in frameworks or registry.list_frameworks()
        ]
    except PatchError as exc:  # one is unknown or wrong
        _show.stop_command(str(exc), WRONG_USE)
    supported, folder = list[Support](), os.getcwd()
    for name, patch in wanted:
        version, states, error = None, list[TargetState](), ""
        if presence.spec_of(patch.framework, folder) is not None:
            version = _checks.find_version(patch.framework) or ""
            sources = symbols.find_symbols(folder)
            states, error = _importing.in_a_process(name) if import_them else (sources.states(patch), "")
        is_whole = name.endswith((registry.EXTRA_SUFFIX, *YAML_SUFFIXES))
        supported.append(Support(patch.framework, is_whole, version, states, error))
    if json:
        plain = [[target._asdict() for target in support.targets] for support in supported]
        rows = [{**support._asdict(), "targets": of_it} for support, of_it in zip(supported, plain)]
        _show.as_json({"frameworks": rows})
        return
    console = _show.open_console()
    console.print(_draw_summary(supported, import_them))
    for support in supported:
        if frameworks and support.version is not None:
            console.print()
            console.print(_draw_details(support))


def _draw_summary(supported: list[Support], is_imported: bool) -> Any:
    table = _show.make_table("framework", "version", *(STATES if is_imported else ("core", "extra")), "")
    for support in supported:
        states = [target.state for target in support.targets]
        tiers = [
            [target.state == HELD for target in support.targets if (target.tier == EXTRA) is is_extra]
            for is_extra in (False, True)
        ]
        held = [f"{sum(tier)} of {len(tier)}" if tier else "–" for tier in tiers]
        counts = [str(states.count(state)) for state in STATES] if is_imported else held
        texts = [support.framework, support.version or "source", *counts, support.error]
        not_there = [support.framework, "not installed", *([""] * (len(texts) - 2))]
        table.add_row(*(for_rich(text) for text in (not_there if support.version is None else texts)))
    return table


def _draw_details(support: Support) -> Any:
    styles = {APPLIED: "green", HELD: "green", FAILED: "bold red"}
    table = _show.make_table("state", f"target of {support.framework}", "stage", no_wrap=True)
    table.add_column("why", overflow="fold")
    modules = group_by(support.targets, lambda target: target.path.partition(":")[0])
    for module, targets in modules.items():
        error = next((target.detail for target in targets if target.state == WAITING), "")
        table.add_row("", for_rich(module, style="bold"), "", for_rich(error))
        for target in targets:
            state = for_rich(target.state, style=styles.get(target.state, "yellow"))
            qualname = for_rich(f"  {target.path.partition(':')[2]}")
            why = target.reason + (f" ({target.detail})" if target.detail else "")
            if target.state == HELD and target.tier == EXTRA and not support.has_extra:
                why = f"off unless {support.framework}+extra is asked for"
            why = "" if target.state == WAITING and error else why
            table.add_row(state, qualname, for_rich(target.stage or ""), for_rich(why))
    return table
