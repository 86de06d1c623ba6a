"""mstxkit/store/arguments.pyi, made of the settings, options, presets and stages themselves, and of the guide's words.

PYTHONPATH=.:tests python tests/builders/argument_types.py
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping

from mstxkit import stages
from mstxkit.escalation.duty.settings import DutySettings
from mstxkit.profiling import presets
from mstxkit.recorder.process import RecorderLimits
from mstxkit.store import groups, limits, options, request

ROOT = Path(__file__).resolve().parents[2]
STUB, PAGE = ROOT / "mstxkit" / "store" / "arguments.pyi", ROOT / "docs" / "guide" / "settings.md"
WIDTH = 120
HEAD = '''"""What `capture` and `escalate` take by name, for editors and type checkers alone: no program loads it.

Made by tests/builders/argument_types.py; a test fails while it is stale.
"""

import os
from typing import Literal, Mapping, Sequence, TypedDict

from typing_extensions import Required

'''
# Where a setting is less, or more, than what it is kept as.
_NUMBERS = "float | str | Mapping[str, float] | None"
NARROWER = {
    "act": f"Literal{json.dumps(limits.ACTS)}",
    "judge": "bool | Literal[0, 1]",
    "live_folder": "str | os.PathLike[str] | None",
    "flops_per_token": _NUMBERS,
    "peak_flops": _NUMBERS,
}


def made() -> str:
    """The whole file."""
    kinds = {**RecorderLimits.__annotations__, **DutySettings.__annotations__}
    settings = {name: NARROWER.get(name, kind.__forward_arg__) for name, kind in kinds.items()}
    settable = options.list_settable(options.REQUEST)
    sample = {"per": f"Required[{_literal(request.BOUNDARIES)}]", "skip": "int", "record": "int"}
    lines = [
        f"StageKey = {_literal(stages.BY_KEY)}",
        f"PresetName = {_literal(presets.list_presets())}",
        f"RanksInWords = {_literal((request.ALL, request.SUSPECT_AND_PEER, *groups.FORMS))}",
        *_table("CaptureSettings", "Each may also be MSTXKIT_<NAME> in the environment.", settings, _meanings()),
        *_table(
            "OptionsOverPreset", "Of `escalate(options=…)`: over those of its preset.",
            {option.name: _of_option(option) for option in settable}, {one.name: one.meaning for one in settable},
        ),
        *_table("SampleOfStage", "Of `escalate(sample=…)`: the part of each occurrence that is recorded.", sample, {}),
    ]  # fmt: skip
    return HEAD + "\n".join(lines) + "\n"


def _literal(values: Iterable[Any], indent: str = "") -> str:
    words = [json.dumps(value) for value in values]
    line = f"Literal[{', '.join(words)}]"
    if len(line) > WIDTH - 25:
        line = "\n".join(["Literal[", *(f"{indent}    {word}," for word in words), f"{indent}]"])
    return line


def _of_option(option: options.Option) -> str:
    if option.kind == options.FLAG:
        return "bool"
    words = _literal([*option.values, *option.short], "    ")
    return f"Sequence[{words}]" if option.kind == options.SOME_OF else words if option.values else "Sequence[str]"


def _table(name: str, about: str, types: Mapping[str, str], meanings: Mapping[str, str]) -> Iterator[str]:
    yield f'\nclass {name}(TypedDict, total=False):\n    """{about}"""\n'
    for key, kind in types.items():
        yield f"    {key}: {kind}"
        if key in meanings:
            yield textwrap.indent(textwrap.fill(f'"""{meanings[key]}"""', WIDTH - 4), "    ")


def _meanings() -> dict[str, str]:
    """Of the settings, as the guide has them: an editor shows it beside the name."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    plain = ((name, value, re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)) for name, value, text in rows)
    return {name: f"{text} (default: {value})" for name, value, text in plain}


if __name__ == "__main__":
    STUB.write_text(made(), encoding="utf-8")
