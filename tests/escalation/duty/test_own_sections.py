"""Whether MindSpeed-LLM carries out its own section is told by what it was asked, not by what is imported."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from mstxkit.escalation.duty.own_sections import carried_out_by_itself

FLAVOURS = ("mindspeed_llm", "mindspeed_llm_fsdp2")
ON = "training:\n  profile: true\n  profile_step_start: 3\n"
COMMANDS = {
    "nothing is asked": (["pretrain_gpt.py", "--profile-step-start", "3"], "", False),
    "by a flag": (["pretrain_gpt.py", "--profile", "--profile-step-start", "3"], "", True),
    "by the file": (["train_fsdp2.py", "FILE"], ON, True),
    "not by the file": (["train_fsdp2.py", "FILE"], ON.replace("true", "false"), False),
    "the file says other things": (["train_fsdp2.py", "FILE"], "training:\n  profile_level: true\n", False),
    "the command line over the file": (["train_fsdp2.py", "FILE", "--training.profile=false"], ON, False),
    "by the command line": (["train_fsdp2.py", "FILE", "--training.profile", "True"], "model: {}\n", True),
    "a file that is not there": (["train_fsdp2.py", "missing.yaml"], "", False),
}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("command", COMMANDS)
def test_it_acts_where_its_command_asks_for_it(
    flavour: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, text, acts = COMMANDS[command]
    file = tmp_path / "fsdp2.yaml"
    file.write_text(text)
    monkeypatch.setattr(sys, "argv", [word.replace("FILE", str(file)) for word in words])
    monkeypatch.setitem(sys.modules, "mindspeed_llm", ModuleType("mindspeed_llm"))

    said = carried_out_by_itself(flavour)

    assert bool(said) is acts
    assert not acts or "takes_over: true" in said


@pytest.mark.parametrize("asked", [True, False])
def test_megatrons_arguments_say_it_where_they_are_parsed(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed job may take them from its checkpoint, and a launcher may change the command line."""
    megatron = ModuleType("megatron.training.global_vars")
    megatron._GLOBAL_ARGS = SimpleNamespace(profile=asked)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mindspeed_llm", ModuleType("mindspeed_llm"))
    monkeypatch.setitem(sys.modules, megatron.__name__, megatron)
    monkeypatch.setattr(sys, "argv", ["pretrain_gpt.py", *([] if asked else ["--profile"])])

    assert bool(carried_out_by_itself("mindspeed_llm")) is asked


def test_elsewhere_its_section_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["other.py", "--profile"])

    assert [carried_out_by_itself(flavour) for flavour in FLAVOURS] == ["", ""]
