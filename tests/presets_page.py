"""The tables of docs/presets.md, made from the presets and the backends; run as a script, it writes them there.

PYTHONPATH=. python tests/presets_page.py
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Callable

from mstxkit import backends, presets
from mstxkit.profiling.declare import Options, Preset

PAGE = Path(__file__).resolve().parents[1] / "docs" / "presets.md"
_OFF = (False, [], "AiCoreNone")


def listed() -> str:
    """One row for each preset, from what costs least."""
    rows = ["| preset | level | sides | mstx | besides | MB per step | cost |", "|---|---|---|---|---|---|---|"]
    for one in by_size():
        sides, mstx = ", ".join(one.activities), "on" if one.mstx else "off"
        if one.domains_exclude:
            mstx += f", without {', '.join(one.domains_exclude)}"
        rows.append(
            f"| `{one.name}` | {one.level} | {sides} | {mstx} | {besides(one)} | {one.est_mb_per_step} | {one.cost} |"
        )
    return "\n".join(rows) + "\n"


def besides(one: Preset) -> str:
    extra = [name for name in ("memory", "shapes", "stacks", "modules") if getattr(one, name)]
    return ", ".join(extra + [one.aic_metrics] * (one.aic_metrics != "none")) or "–"


def becomes(name: str) -> str:
    """One row for each preset: what it is on one backend, as for the newest version known."""
    rows = ["| preset | options | left out or changed |", "|---|---|---|"]
    for one in by_size():
        options, notes = backends.load(name).described(one)
        rows.append(f"| `{one.name}` | {shown(options)} | {'; '.join(notes) or '–'} |")
    return "\n".join(rows) + "\n"


def shown(options: Options) -> str:
    """What is on, by the profiler's own names."""
    flat: dict[str, Any] = {**options, **options.get("experimental_config", {})}
    on = {key: value for key, value in flat.items() if value not in _OFF and key != "experimental_config"}
    return ", ".join(
        f"`{key}={value if not isinstance(value, list) else '[' + ', '.join(value) + ']'}`" for key, value in on.items()
    )


def by_size() -> list[Preset]:
    return sorted(map(presets.load, presets.known()), key=lambda one: (one.est_mb_per_step, one.name))


def parts() -> dict[str, Callable[[], str]]:
    return {"presets": listed, **{name: partial(becomes, name) for name in backends.known()}}


def written(text: str) -> str:
    """The page with its tables as they are now."""
    for name, make in parts().items():
        head, _, rest = text.partition(f"<!-- {name} -->\n")
        text = f"{head}<!-- {name} -->\n{make()}{rest[rest.index('<!-- end -->') :]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
