"""Any valid configuration, for hypothesis; and what a bad source is refused with."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from mstxkit import stages
from mstxkit.config import validate
from mstxkit.config.adapters import flatten_config
from mstxkit.config.configuring import configure
from mstxkit.config.model import Config, Window
from mstxkit.errors import ConfigError

_FLAGS = ("memory", "flops", "l2_cache", "sys_io", "sys_interconnection", "record_op_args", "data_simplification")
_HOST_FLAGS = ("shapes", "stacks", "modules")
_NAMES = st.lists(st.sampled_from(("default", "communication", "a b")), min_size=1, unique=True).map(tuple)
_RANKS = st.one_of(st.just("all"), st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True).map(tuple))


@st.composite
def windows(draw: Any, is_full: bool = False) -> Window:
    wait, warmup = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    steps = draw(st.one_of(st.none(), st.integers(1, 50)))
    repeat = 1 if steps is None else draw(st.integers(0, 3))
    return Window(
        first_step=1 + wait + warmup + draw(st.integers(0, 20)),
        steps=steps,
        counted_from=draw(st.sampled_from(("training", "process"))),
        warmup=warmup,
        wait=wait,
        repeat=repeat,
        more_steps=draw(st.sampled_from(((), (90, 99)))) if is_full and steps is not None and repeat == 1 else (),
    )


@st.composite
def _parts(draw: Any) -> dict[str, Any]:
    """What systems say that record parts of a step."""
    some = st.lists(st.sampled_from(sorted(stages.BY_KEY)), min_size=1, max_size=3, unique=True).map(tuple)
    chosen = draw(st.just("all") | some)
    piece = "decode_step" if "actor_generate" in chosen else "micro_batch"
    sampled = [None, {"per": piece}, {"per": piece, "skip": 3, "record": 2}]
    return {
        "stages": chosen,
        "sampling": draw(st.sampled_from(sampled)) if chosen != "all" else None,
        "replicas": draw(st.none() | _RANKS),
        "limits": draw(st.sampled_from((None, {"seconds": 1.5}, {"bytes": 1 << 30}))),
    }


@st.composite
def configs(draw: Any, is_full: bool = False) -> Config:
    """`is_full`: with what some systems alone can say."""
    level = draw(st.sampled_from(("none", "level0", "level1", "level2")))
    activities = draw(st.sampled_from((("cpu", "npu"), ("npu",), ("cpu",))))
    export = draw(st.sampled_from(("text", "db", "both")))
    fields = {name: draw(st.booleans()) for name in _FLAGS}
    if "cpu" in activities:
        fields.update({name: draw(st.booleans()) for name in _HOST_FLAGS})
        limits_ms = st.sampled_from((0.0, 2.5)) if is_full else st.floats(0, 100)
        fields["gc_detect_threshold_ms"] = draw(st.one_of(st.none(), limits_ms))
    mstx = level == "none" or draw(st.booleans())
    if mstx:
        fields[draw(st.sampled_from(("domains_include", "domains_exclude")))] = draw(st.one_of(st.just(()), _NAMES))
    if level in ("level1", "level2"):
        fields["aic_metrics"] = draw(st.sampled_from(("none", "PipeUtilization", "MemoryUB")))
    if is_full:
        fields.update(draw(_parts()), op_attr=export != "text" and draw(st.booleans()))
    found = Config(
        enabled=draw(st.booleans()),
        window=draw(windows(is_full)),
        ranks=draw(_RANKS),
        level=level,
        activities=activities,
        mstx=mstx,
        host_sys=draw(st.lists(st.sampled_from(("cpu", "mem", "numa")), unique=True).map(tuple)),
        export=export,
        analysis=draw(st.sampled_from(("off", "sync", "async"))),
        path=draw(st.sampled_from(("", "./out", "/data/a run/it's", "数据"))),
        **fields,
    )
    assert not validate.check_config(found).problems
    return found


def differing(config: Config, other: Config | None = None) -> dict[str, Any]:
    """Fields by their full name, as far as they are not those of `other`, or of a configuration that says nothing."""
    base = flatten_config(Config() if other is None else other)
    return {name: value for name, value in flatten_config(config).items() if value != base.get(name)}


_numbers = itertools.count()


def refusal(source: Any, tmp_path: Path | None = None, **known: Any) -> str:
    """What a source is refused with; a pair of file name and text is written first, and its folder cut from this."""
    folder = None
    if isinstance(source, tuple):
        assert tmp_path is not None
        folder = tmp_path / str(next(_numbers))
        folder.mkdir()
        (folder / source[0]).write_text(source[1], encoding="utf-8")
        source = folder / source[0]
    with pytest.raises(ConfigError) as caught:
        configure(source, **known)
    return str(caught.value).replace(f"{folder}/", "")
