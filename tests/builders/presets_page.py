"""The tables of docs/guide/presets.md, made from the presets and the backends; run as a script, it writes them there.

PYTHONPATH=. python tests/builders/presets_page.py
"""

from __future__ import annotations

import textwrap
from functools import partial
from pathlib import Path
from typing import Any, Callable

from mstxkit.profiling import backends, presets
from mstxkit.profiling.declare import Options, Preset

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "presets.md"
_OFF = (False, [], "AiCoreNone")


def listed() -> str:
    """One row for each preset, from what costs least; below them what each costs."""
    rows = ["| preset | level | sides | mstx | besides | MB per step |", "|---|---|---|---|---|---|"]
    for one in by_size():
        sides, mstx = ", ".join(one.activities), "on" if one.mstx else "off"
        if one.domains_exclude:
            mstx += f", without {', '.join(one.domains_exclude)}"
        rows.append(f"| `{one.name}` | {one.level} | {sides} | {mstx} | {besides(one)} | {one.est_mb_per_step} |")
    return "\n".join([*rows, "", *(item(f"`{one.name}`: {one.cost}") for one in by_size())]) + "\n"


def item(text: str) -> str:
    return textwrap.fill(f"- {text}", 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def besides(one: Preset) -> str:
    extra = [name for name in ("memory", "shapes", "stacks", "modules") if getattr(one, name)]
    return ", ".join(extra + [one.aic_metrics] * (one.aic_metrics != "none")) or "–"


def becomes(name: str) -> str:
    """One row for each option, a column for each preset, as for the newest version known; below: what is changed."""
    described = {one.name: backends.load_backend(name).described(one) for one in by_size()}
    on = {preset: switched_on(options) for preset, (options, _) in described.items()}
    rows = [f"| option | {' | '.join(f'`{preset}`' for preset in on)} |", "|---" * (len(on) + 1) + "|"]
    for option in dict.fromkeys(option for options in on.values() for option in options):
        rows.append(f"| `{option}` | {' | '.join(options.get(option, '–') for options in on.values())} |")
    noted: dict[str, list[str]] = {}
    for preset, (_, notes) in described.items():
        for note in notes:
            noted.setdefault(note, []).append(f"`{preset}`")
    below = [item(f"{', '.join(of) if len(of) < len(on) else 'all'}: {note}") for note, of in noted.items()]
    return "\n".join([*rows, *([""] if below else []), *below]) + "\n"


def switched_on(options: Options) -> dict[str, str]:
    """What is on, by the profiler's own names."""
    flat: dict[str, Any] = {**options, **options.get("experimental_config", {})}
    on = {key: value for key, value in flat.items() if value not in _OFF and key != "experimental_config"}
    return {key: ", ".join(value) if isinstance(value, list) else str(value) for key, value in on.items()}


def by_size() -> list[Preset]:
    return sorted(map(presets.load_preset, presets.list_presets()), key=lambda one: (one.est_mb_per_step, one.name))


def parts() -> dict[str, Callable[[], str]]:
    return {"presets": listed, **{name: partial(becomes, name) for name in backends.list_backends()}}


def written(text: str) -> str:
    """The page with its tables as they are now."""
    for name, make in parts().items():
        head, _, rest = text.partition(f"<!-- {name} -->\n")
        text = f"{head}<!-- {name} -->\n{make()}{rest[rest.index('<!-- end -->') :]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
