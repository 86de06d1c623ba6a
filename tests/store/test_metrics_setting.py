"""Where figures may go, as a user says it: what is allowed, what is refused with a reason, and no secret in it."""

from __future__ import annotations

from typing import Any

import pytest

from mstxkit.errors import CaptureError
from mstxkit.store import metrics_setting
from mstxkit.store.metrics_setting import Address, Flops, Outlet


@pytest.mark.parametrize(
    ("text", "outlets"),
    [
        (None, [Outlet("auto")]),
        ("", [Outlet("auto")]),
        ("off", [Outlet("off")]),
        (":9464", [Outlet("page", ":9464", Address("127.0.0.1", 9464))]),
        ("[::1]:0, textfile", [Outlet("page", "[::1]:0", Address("::1", 0)), Outlet("textfile")]),
        ("textfile:/var/lib/node", [Outlet("textfile", "/var/lib/node")]),
        ("targets:/etc/sd", [Outlet("targets", "/etc/sd")]),
        ("otlp:http://host:4318", [Outlet("otlp", "http://host:4318/v1/traces")]),
        ("otlp:https://host/otlp/v1/traces", [Outlet("otlp", "https://host/otlp/v1/traces")]),
    ],
)
def test_what_may_be_said(text: Any, outlets: list[Outlet]) -> None:
    assert metrics_setting.check_metrics(text).outlets == tuple(outlets)


@pytest.mark.parametrize(
    "text",
    [
        "on", "9464", ":99999", "textfile:relative", "targets", "targets:", "otlp:", "otlp:ftp://host", "host:", True,
        9464, "a\nb:1", "otlp:http://host:x", ",".join([":1"] * 9), "otlp:http://ho\x1bst:1",
    ],
)  # fmt: skip
def test_what_may_not_is_refused_with_what_may(text: Any) -> None:
    with pytest.raises(CaptureError, match="of capture"):
        metrics_setting.check_metrics(text)


@pytest.mark.parametrize("url", ["http://me:secret@host:4318", "http://host:4318/?key=secret"])
def test_a_secret_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(CaptureError) as refused:
        metrics_setting.check_metrics(f"otlp:{url}")

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("host", "is_loopback"), [
    ("127.0.0.1", True), ("127.3.2.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
    ("10.0.0.1", False), ("node-1", False), ("127.0.0.1.evil.example", False),
])  # fmt: skip
def test_only_what_surely_is_loopback_counts_as_such(host: str, is_loopback: bool) -> None:
    assert Address(host, 1).is_loopback is is_loopback


def test_flops_are_a_number_or_one_for_each_stage() -> None:
    flops = metrics_setting.check_metrics(None, "actor_update=6e9,actor_generate=2e9", 1e12).flops

    assert flops.mfu_ratio("actor_update", 1000.0, 12) == pytest.approx(0.5)
    assert flops.mfu_ratio("reward", 1000.0, 12) is None
    assert Flops().mfu_ratio("actor_update", 1000.0, 12) is None


@pytest.mark.parametrize(
    "value", ["x", -1, "actor_update", "actor_update=x", {"actor_update": 0}, True, float("nan"), [1]]
)
def test_flops_that_cannot_be_are_refused(value: Any) -> None:
    with pytest.raises(CaptureError, match="flops_per_token"):
        metrics_setting.check_metrics(None, value)


def test_a_setting_goes_through_a_word_and_back() -> None:
    given = (":9464,otlp:http://h:1", {"actor_update": 6e9}, 1e12)

    assert metrics_setting.of_word(metrics_setting.as_word(*given)) == metrics_setting.check_metrics(*given)
    assert metrics_setting.as_word(None, None, None) == ""


@pytest.mark.parametrize("word", ["x", "[]", "{}", '{"metrics": "nonsense"}', '{"flops_per_token": "x"}', "\0"])
def test_a_word_that_says_nothing_is_the_default(word: str) -> None:
    assert metrics_setting.of_word(word) == metrics_setting.MetricsSetting()
