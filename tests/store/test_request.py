"""Requests: what may be in them, what is said of those that are wrong, and which are one and the same."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstxkit.config import model
from mstxkit.errors import ConfigError
from mstxkit.store import request
from mstxkit.store.limits import SessionLimits
from mstxkit.store.request import Known, Request, Sample, check_request

KNOWN = Known(("actor_generate", "actor_update", "my_stage"), (0, 1, 2, 3, 8), ("full", "kernels"))
NOW_NS = 1_700_000_000 * 10**9
PLAIN = {"stage": "actor_update", "ranks": [3]}


def read(**given: Any) -> Request:
    return check_request({**PLAIN, **given}, KNOWN, "r.json", NOW_NS)


def problems(fields: Any) -> str:
    with pytest.raises(ConfigError) as error:
        check_request(fields, KNOWN, "r.json", NOW_NS)
    return str(error.value)


def test_what_is_left_out_has_a_stated_default() -> None:
    made = read()

    assert (made.stages, made.ranks, made.steps, made.occurrences) == (("actor_update",), (3,), 1, None)
    assert (made.preset, made.options, made.sample, made.limits) == ("full", (), None, SessionLimits())
    assert made.expires_ns - made.created_ns == 3600 * 10**9
    assert made.created_ns == NOW_NS


def test_everything_that_may_be_given_is_kept() -> None:
    made = read(
        stage=["update_actor", "my_stage"], ranks=[8, 0], occurrences=4,
        options={"level": "level1", "mstx": True, "activities": ["npu", "cpu"], "domains_exclude": []},
        sample={"per": "micro_batch", "skip": 2, "record": 3}, limits={"seconds": 30, "bytes": 10**10},
        reason="slow: 4×", occasion="step 7", created_ns=5, expires_ns=6,
    )  # fmt: skip

    assert made.stages == ("actor_update", "my_stage")
    assert (made.ranks, made.steps, made.occurrences, made.preset) == ((0, 8), None, 4, None)
    assert made.options == (
        ("activities", ("cpu", "npu")),
        ("domains_exclude", ()),
        ("level", "level1"),
        ("mstx", True),
    )
    assert (made.sample, made.limits) == (Sample("micro_batch", 2, 3), SessionLimits(30.0, 10**10))
    assert check_request(json.loads(json.dumps(made.as_json())), KNOWN) == made


def test_the_same_call_from_every_rank_is_one_request() -> None:
    """They ask at slightly different times, and each may give its own numbers as the reason."""
    first = read(occasion="step 7", reason="loss 0.31", created_ns=NOW_NS)
    second = read(occasion="step 7", reason="loss 0.29", created_ns=NOW_NS + 10**9, stage=["update_actor"])

    assert first.id == second.id
    assert len({read(**more).id for more in ({}, {"steps": 2}, {"preset": "kernels"}, {"occasion": "8"})}) == 4


def test_an_id_is_the_same_in_every_process() -> None:
    assert read().id == "19513661bfb2e400"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stage": "actor_updaet"}, "r.json: stage='actor_updaet': no stage of this run; did you mean actor_update?"),
        ({"stage": []}, "stage=[]: must be a stage's name, or a list of some; allowed: actor_generate, actor_update"),
        ({"stage": [["x"]]}, "stage=['x']: no stage of this run"),
        ({"stages": ["my_stage"]}, "stage and stages are both given"),
        ({"ranks": [3, 9]}, "ranks=9: no rank of this run; allowed: 0 to 3, 8"),
        ({"ranks": [True]}, "ranks=True: no rank of this run"),
        ({"ranks": [-1]}, "ranks=-1: no rank of this run"),
        ({"ranks": []}, "ranks=[]: must be a list of ranks, or a word; allowed: all, suspect+peer"),
        ({"ranks": "suspects"}, "ranks='suspects': must be a list of ranks, or a word"),
        ({"ranks": [1, 1]}, "ranks=[1, 1]: a rank is given twice"),
        ({"ranks": None}, "must be a list of ranks"),
        ({"steps": 0}, "steps=0: must be a whole number from 1 to 1000000"),
        ({"steps": True}, "steps=True: must be a whole number"),
        ({"steps": 2.0}, "steps=2.0: must be a whole number"),
        ({"steps": 1, "occurrences": 1}, "occurrences=1: steps=1 is given too; give one of them"),
        ({"preset": "ful"}, "preset='ful': no preset; did you mean full? allowed: full, kernels"),
        (
            {"ranks": "dp:x"},
            "ranks='dp:x': 'x' is no number of a rank or group, and no span of them; give numbers, host",
        ),
        ({"options": {"level": 3}}, "options.level=3: no such value"),
        ({"options": {"level": True}}, "options.level=True: no such value"),
        ({"options": {"level": "levle1"}}, "options.level='levle1': no such value; did you mean level1?"),
        ({"options": {"levle": "level1"}}, "options.levle: there is no such key; did you mean level?"),
        ({"options": {"mstx": 1}}, "options.mstx=1: must be true or false"),
        ({"options": {"activities": []}}, "options.activities=[]: must be a list of names, none of them empty"),
        ({"options": {"activities": ["gpu"]}}, "options.activities=['gpu']"),
        ({"options": {"domains_exclude": "communication"}}, "options.domains_exclude='communication': must be a list"),
        ({"options": [1]}, "options=[1]: must be an object of level"),
        ({"sample": "micro_batch"}, "sample='micro_batch': must be an object"),
        ({"sample": {"skip": 1}}, "sample.per: must say what is counted; allowed: micro_batch, mini_batch, decode_st"),
        ({"sample": {"per": "step"}}, "sample.per='step': must say what is counted"),
        ({"sample": {"per": "micro_batch", "record": 0}}, "sample.record=0: must be a whole number from 1"),
        ({"limits": {"seconds": 0}}, "limits.seconds=0: must be a number above 0"),
        ({"limits": {"seconds": float("inf")}}, "limits.seconds=inf: must be a number above 0"),
        ({"limits": {"seconds": 10**400}}, "must be a number above 0"),
        ({"limits": {"bytes": 1.5}}, "limits.bytes=1.5: must be a whole number"),
        ({"reason": "a\nb"}, "must be a text of at most 500 printable characters"),
        ({"reason": "\ud800"}, "must be a text of at most 500 printable characters"),
        ({"occasion": "x" * 501}, "must be a text of at most 500 printable characters"),
        ({"expires_ns": 1}, "expires_ns=1: must be after created_ns, by at most 604800 s"),
        ({"created_ns": 1, "expires_ns": 10**18}, "must be after created_ns, by at most 604800 s"),
        ({"id": "0123456789abcdef"}, "id='0123456789abcdef': it is not the id of this content"),
        ({"id": 7}, "id=7: it is not the id of this content"),
        ({"run": "rm -rf /"}, "r.json: run: there is no such key"),
        ({"\x1b[2J": 1}, "'\\x1b[2J': there is no such key"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_allowed(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(**given)

    assert message in str(error.value)


def test_ranks_are_never_a_default() -> None:
    with pytest.raises(ConfigError, match="ranks: must be given"):
        check_request({"stage": "actor_update"}, KNOWN)


def test_all_that_is_wrong_is_told_at_once_but_not_without_end() -> None:
    several = problems({"stage": "x", "ranks": [77], "preset": "y", "steps": -1})
    many = problems({**PLAIN, "ranks": list(range(100, 5000))})

    assert [line.split(":")[1].split("=")[0].strip() for line in several.splitlines()] == [
        "preset", "ranks", "stage", "steps",
    ]  # fmt: skip
    assert len(many.splitlines()) <= 20


@pytest.mark.parametrize("fields", [None, [1]])
def test_what_is_no_object_is_refused(fields: Any) -> None:
    assert f"a request is a JSON object, not {fields}" in problems(fields)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["all", "full"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(request._KEYS), JSON))
def test_whatever_is_in_it_it_is_a_request_or_one_error(given: dict[str, Any]) -> None:
    try:
        made = check_request({**PLAIN, **given}, KNOWN, now_ns=NOW_NS)
    except ConfigError:
        return

    assert check_request(json.loads(json.dumps(made.as_json())), KNOWN) == made


def test_parts_of_a_stage_have_the_names_of_a_configuration() -> None:
    assert get_args(model.Boundary) == request.BOUNDARIES


def test_the_ranks_meant_are_those_of_the_run() -> None:
    assert read(ranks="all").ranks_in(3) == (0, 1, 2)
    assert read(ranks="suspect+peer").ranks_in(9, (5, 2)) == (2, 5)
    assert read(ranks=[1, 0]).ranks_in(9, (5, 2)) == (0, 1)
