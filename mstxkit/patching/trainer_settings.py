"""What the trainer of this process is configured with, as far as that can be no secret: a run keeps it, to be compared.

Numbers and switches are kept by their names; no text, and nothing that is called like a secret. Only what is plainly
stored is looked at, in dicts, nodes of OmegaConf and the object of settings itself: no code of anybody's runs, nothing
is resolved, no tensor is read.
"""

from __future__ import annotations

import math
import re
import sys
from itertools import islice
from typing import Any, Callable

from .. import faults
from ..engine.plain_paths import Unreadable, plain_attribute

Settings = dict[str, "bool | int | float"]
KEPT_AT_MOST, _LOOKED_AT_MOST, _DEEPEST = 1_024, 3_000, 8  # verl 0.9.1 has 488
_NAME = re.compile(r"[A-Za-z_][\w-]{0,79}", re.ASCII)
_SECRET = re.compile(
    r"(^|_)(password|passwd|passphrase|pwd|secret|token|key|pin|otp|auth|credentials?)$", re.IGNORECASE
)
# Of a type, past whatever its metaclass pretends.
_module: Callable[[type], str] = type.__dict__["__module__"].__get__

current: Settings = {}
# Called when there is something new.
on_learnt: Callable[[], None] | None = None


def learn_settings(owner: Any, name: str = "") -> None:
    """Keep what an object of settings holds, or the one that `owner` stores as `name`. Never raises.

    Cost: some milliseconds, and a small file: for what is called once, before training.
    """
    global current
    try:
        settings = flatten_settings(plain_attribute(owner, name) if name else owner)
        if settings and settings != current:
            current = settings
            if on_learnt is not None:
                on_learnt()
    except Unreadable:
        pass
    except Exception as exc:
        faults.note_fault("the settings of a trainer", exc)


def flatten_settings(settings: Any) -> Settings:
    """Numbers and switches by their names, `data.train_batch_size`; what is nearest to the top first."""
    kept: Settings = {}
    top = _as_plain(settings)
    waiting: list[tuple[str, Any, int]] = [("", top if type(top) is dict else _find_stored(settings), 0)]
    for name, value, depth in waiting:  # it grows meanwhile
        if type(value) is dict and depth < _DEEPEST:
            parts = islice(value.items(), max(0, _LOOKED_AT_MOST - len(waiting)))
            waiting += [
                (f"{name}.{key}".lstrip("."), _as_plain(part), depth + 1)
                for key, part in parts
                if type(key) is str and _NAME.fullmatch(key) and not _SECRET.search(key)
            ]
        elif type(value) in (bool, int, float) and math.isfinite(value) and abs(value) < 1 << 63:
            kept[name] = value
        if len(kept) == KEPT_AT_MOST:
            break
    return kept


def _as_plain(value: Any) -> Any:
    """What a node of OmegaConf holds, as it stands there; anything else is itself."""
    if not _module(type(value)).startswith("omegaconf."):
        return value
    own = _find_stored(value)
    return own.get("_content", own.get("_val"))


def _find_stored(value: Any) -> dict[str, Any]:
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


# As `attributes` of a target that is called once before training; they give none.


def of_config(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Of a trainer that has its configuration as `config`."""
    learn_settings(self, "config")
    return {}


def of_trainer(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Of a trainer that stores its settings itself, and with the group of its workers those of model and generation."""
    own = _find_stored(self)
    group = _find_stored(own.get("actor_worker"))
    learn_settings({**own, **{name: _find_stored(group.get(name)) for name in ("generate_config", "megatron_config")}})
    return {}


def of_megatron(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """Of Megatron, whose arguments are a global of it. Source: core_r0.8.0, core_v0.12.1 training/global_vars.py."""
    learn_settings(sys.modules.get("megatron.training.global_vars"), "_GLOBAL_ARGS")
    return {}
