"""vLLM's `--profiler-config`: its forms, its defaults, what it cannot say, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders.any_config import refusal

from mstxkit.config import configuring, sources
from mstxkit.config.adapters import vllm
from mstxkit.config.configuring import Understood
from mstxkit.config.model import Config, Sampling


def understood(**values: Any) -> Understood:
    text = f"vllm serve model --profiler-config '{json.dumps(values)}' --port 80\n"
    return configuring.understand_source(sources.from_shell(text, "serve.sh"))


def read(**values: Any) -> Config:
    return understood(profiler="torch", torch_profiler_dir="/t", **values).read.config


def test_the_engine_alone_is_recorded_as_vllm_ascend_fixes_it() -> None:
    config = read()

    assert (config.enabled, config.stages, config.level, config.mstx) == (True, ("actor_generate",), "level1", False)
    assert (config.path, config.stacks, config.memory, config.sampling) == ("/t", True, False, None)
    assert (
        "between start_profile and stop_profile only"
        in understood(profiler="torch", torch_profiler_dir="/").read.notes[0]
    )


@pytest.mark.parametrize(
    ("counts", "sampling"),
    [
        ({"delay_iterations": 3, "max_iterations": 4}, Sampling(per="decode_step", skip=3, record=4)),
        ({"max_iterations": 4}, Sampling(per="decode_step", record=4)),
        ({"delay_iterations": 3}, None),
        ({"warmup_iterations": 2, "wait_iterations": 1}, Sampling(per="decode_step", skip=3, record=5)),
        ({"active_iterations": 9}, None),
    ],
)
def test_its_iterations_are_a_sample(counts: dict[str, int], sampling: Sampling | None) -> None:
    config = read(**counts)
    written = vllm.write(config)

    assert config.sampling == sampling
    assert written.lost == ()
    assert configuring.configure(sources.from_shell(written.text, "again.sh")) == config


def test_every_form_says_the_same() -> None:
    values = {"profiler": "torch", "torch_profiler_dir": "/t", "torch_profiler_with_stack": False}
    dotted = " ".join(f"--profiler-config.{key}={str(value).lower()}" for key, value in values.items())

    wanted = configuring.configure({"profiler_config": values})

    assert configuring.configure(sources.from_shell(f"vllm serve {dotted}\n", "a.sh")) == wanted
    assert configuring.configure(["--profiler-config", json.dumps(values)]) == wanted
    assert wanted.stacks is False


def test_mindspeed_rls_section_of_that_name_is_none_of_vllms() -> None:
    assert not vllm.detect(sources.from_mapping({"profiler_config": {"integrated": {"profile": True}}}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--profiler-config torch", "serve.sh:1: --profiler-config='torch': a JSON object is needed"),
        ("--profiler-config '{\"profiler\": \"torch\"}'", "torch_profiler_dir: vLLM needs a folder where"),
        ("--profiler-config.torch_profiler_dir=/t", "torch_profiler_dir='/t': vLLM takes it with profiler: torch only"),
        ("--profiler-config.profiler=npu", "profiler='npu': not one of its values; allowed: torch, cuda, None"),
        ("--profiler-config.max_iterations=-1", "max_iterations=-1: must be 0 or more"),
        ("--profiler-config.max_iteration=1", "max_iteration: unknown key; did you mean max_iterations?"),
        ("--profiler-config $NOT_SET", "serve.sh:1: $NOT_SET: this variable is set neither in the file nor"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused(text: str, message: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)

    assert message in refusal(("serve.sh", f"vllm serve {text}\n"), tmp_path)
