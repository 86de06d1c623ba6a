"""Of a trainer's configuration numbers and switches are kept: no text, no secret, nothing that would run or be read."""

from __future__ import annotations

import argparse
import json
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator

import pytest
from builders import lives

import mstxkit
from mstxkit import faults
from mstxkit.patching import trainer_settings
from mstxkit.patching.trainer_settings import flatten_settings


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    trainer_settings.current = {}
    yield
    trainer_settings.current = {}


@dataclass
class Arguments:
    lr: float = 1e-6
    epochs: int = 3
    compile: bool = False
    run_name: str = "exp7"
    rollout: dict[str, Any] = field(default_factory=lambda: {"n": 8, "engine": {"tp": 2}})


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (Arguments(), {"lr": 1e-6, "epochs": 3, "compile": False, "rollout.n": 8, "rollout.engine.tp": 2}),
        (argparse.Namespace(tensor_parallel=4, load="/models/7b", seed=None), {"tensor_parallel": 4}),
        ({"data": {"batch": 64, "files": ["a"]}, "ratio": float("nan"), "big": 1 << 70}, {"data.batch": 64}),
        ({"two words": 1, 3: 4, "": 5, "a\x1b[31m": 6, "fine-name": 7}, {"fine-name": 7}),
        (None, {}),
        ("exp7", {}),
    ],
)
def test_numbers_and_switches_are_kept_by_their_names(settings: Any, kept: dict[str, Any]) -> None:
    assert flatten_settings(settings) == kept


@pytest.mark.parametrize("name", ["password", "wandb_api_key", "HF_TOKEN", "db_pwd", "client_secret", "pin", "auth"])
def test_what_is_called_like_a_secret_is_not_kept_whatever_it_is(name: str) -> None:
    assert flatten_settings({name: 1234, "inner": {name: 1234}, name + "s_more": {"x": 1}}) == {name + "s_more.x": 1}
    assert flatten_settings({name: {"x": 1234}}) == {}


def test_settings_that_only_sound_like_a_secret_are_kept() -> None:
    named = {"ppo_max_token_len_per_gpu": 16_384, "max_tokens": 512, "pad_token_id": 0, "monkey_count": 1}

    assert flatten_settings(named) == named


def test_nothing_runs_when_settings_are_looked_at() -> None:
    class Watchful(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise AssertionError("asked")

    class Lazy:
        def __init__(self) -> None:
            self.size, self.inner, self.held = 4, Watchful(a=1), self

        def __getattribute__(self, name: str) -> Any:
            raise AssertionError("asked")

        @property
        def dear(self) -> int:
            raise AssertionError("asked")

    assert flatten_settings(Lazy()) == {"size": 4}


def test_numbers_of_other_types_are_not_read() -> None:
    """A tensor is a number too, for who asks it."""

    class Tensor(float):
        def __float__(self) -> float:
            raise AssertionError("asked")

    assert flatten_settings({"loss": Tensor(1.0), "steps": 3}) == {"steps": 3}


def test_however_large_or_deep_settings_are_little_is_kept() -> None:
    endless: dict[str, Any] = {"x": 1}
    endless["again"] = endless
    wide = {f"name{number}": number for number in range(100_000)}

    assert len(flatten_settings(endless)) == trainer_settings._DEEPEST
    assert len(flatten_settings(wide)) == trainer_settings.KEPT_AT_MOST


def test_what_cannot_be_looked_at_is_a_fault_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[str] = []
    monkeypatch.setattr(faults, "note_fault", lambda where, exc: noted.append(where))
    monkeypatch.setattr(trainer_settings, "flatten_settings", lambda settings: 1 / 0)

    trainer_settings.learn_settings({"a": 1})
    trainer_settings.learn_settings(object(), "config")

    assert noted == ["the settings of a trainer"] and trainer_settings.current == {}


def test_a_run_keeps_what_its_trainer_was_configured_with(acme: Any, install: Any, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    acme.write(
        "trainer", "class Trainer:\n def __init__(s): s.config = {'batch': 64, 'token': 5}\n def load(s): return 7"
    )
    target = acme.target("ACME.trainer:Trainer.load", attributes=trainer_settings.of_config)
    with lives.own_run(tmp_path) as folder, mstxkit.capture(folder):
        mstxkit.autopatch(targets=acme.patch(target))
        given = acme.load("trainer").Trainer().load()
        run = mstxkit.open_run(folder)
        mstxkit.unpatch()

    (file,) = (folder / "patches").iterdir()
    assert given == 7 and run.trainer_settings() == {"batch": ["64"]}
    assert stat.S_IMODE(file.stat().st_mode) & 0o027 == 0
    assert json.loads(file.read_text())["settings"] == {"batch": 64}


def test_a_trainer_that_stores_its_settings_tells_those_of_its_model_and_of_generation_too() -> None:
    """As MindSpeed-RL's: arguments of its own, `kwargs` with the rest of `rl_config`, and a group of workers."""

    class Held:
        def __init__(self, **values: Any) -> None:
            self.__dict__.update(values)

    group = Held(
        megatron_config=Held(lr=1e-6, tensor_model_parallel_size=4, load="/models/7b"),
        generate_config=Held(gpu_memory_utilization=0.6, sampling_config={"max_tokens": 512}), num_npus=16,
    )  # fmt: skip
    trainer = Held(actor_worker=group, train_iters=1000, kwargs={"clip_ratio": 0.2, "wandb_project": "exp"}, ref=group)

    assert trainer_settings.of_trainer(trainer, "unused") == {}
    assert trainer_settings.current == {
        "train_iters": 1000, "kwargs.clip_ratio": 0.2, "megatron_config.lr": 1e-6,
        "megatron_config.tensor_model_parallel_size": 4, "generate_config.gpu_memory_utilization": 0.6,
        "generate_config.sampling_config.max_tokens": 512,
    }  # fmt: skip


@pytest.mark.frameworks
def test_of_omegaconf_its_own_nodes_are_read_and_nothing_is_resolved() -> None:
    import omegaconf

    asked: list[int] = []
    omegaconf.OmegaConf.register_new_resolver("asked", lambda: asked.append(1) or 5, replace=True)
    config = omegaconf.OmegaConf.create({"a": {"b": 2, "c": "${a.b}", "d": "${asked:}", "e": None}, "l": [1], "f": 0.5})

    assert flatten_settings(config) == {"f": 0.5, "a.b": 2}
    assert asked == []
