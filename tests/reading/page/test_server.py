"""`mstxkit report --open` serves two pages and a trace to whoever has the address, and nothing else to anybody."""

from __future__ import annotations

import http.client
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Callable, Iterator

import pytest

pytest.importorskip("polars")

from builders import browser
from builders.run_files import BankFiles, ProcessFiles, new_run
from builders.terminals import HIDDEN, SHOWN_AGAIN, all_of

from mstxkit.reading.exporters import load_exporter
from mstxkit.reading.page import server
from mstxkit.reading.run import open_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = new_run(tmp_path / "exp7")
    bank = BankFiles().range("gen", 0, 100, stage="gen", own=True, step=0).range("gen", 200, 400, stage="gen", step=1)
    ProcessFiles(path, 100, rank=0).seal(bank)
    return path


@pytest.fixture
def serving(run: Path, tmp_path: Path) -> Iterator[server.PageServer]:
    with served(run, tmp_path, lambda rows: nullcontext(lambda more: None)) as opened:
        yield opened


@contextmanager
def served(run: Path, folder: Path, showing: server.Showing) -> Iterator[server.PageServer]:
    with server.PageServer(open_run(run), "<h1>page</h1>", "exp7 &lt;b&gt;", folder, showing) as opened:
        thread = threading.Thread(target=opened.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def asked(serving: server.PageServer, path: str, method: str = "GET", host: str = "") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(*serving.server_address[:2], timeout=20)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    answer.content = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


def test_it_listens_on_this_machine_alone(serving: server.PageServer) -> None:
    assert serving.server_address[0] == "127.0.0.1"
    assert len(serving.token) >= 20


def test_the_page_and_the_trace_are_there(serving: server.PageServer, run: Path, tmp_path: Path) -> None:
    page, trace = (asked(serving, f"/{serving.token}/{name}") for name in ("", "trace"))

    assert page.content == b"<h1>page</h1>"  # type: ignore[attr-defined]
    assert page.getheader("Cache-Control") == "no-store"
    load_exporter("perfetto").write_to(open_run(run), tmp_path / "expected")
    assert trace.content == (tmp_path / "expected").read_bytes()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "path",
    ["/", "/x/", "/{t}", "/{t}/../", "/{t}/run.json", "/{t}/sealed/", "/{t}/%2e%2e/run.json", "/{t}//etc/passwd", "//"],
)
def test_nothing_else_is(serving: server.PageServer, path: str) -> None:
    answer = asked(serving, path.format(t=serving.token))

    assert (answer.status, answer.content) == (404, b"")  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_only_get_is_answered(serving: server.PageServer, method: str) -> None:
    assert asked(serving, f"/{serving.token}/", method).status == 501


def test_another_name_for_this_machine_reaches_nothing(serving: server.PageServer) -> None:
    assert asked(serving, f"/{serving.token}/", host="evil.example:80").status == 404


STAND_IN = """
window.handed = [];
const tab = { postMessage(data, origin) {
  window.handed.push([typeof data === "string" ? data : data.perfetto.buffer.byteLength, origin]);
  if (data === "PING" && window.handed.length > 1) {
    dispatchEvent(new MessageEvent("message", { data: "PONG", origin: "https://ui.perfetto.dev" }));
  } } };
window.open = () => { MessageEvent.prototype.__defineGetter__("source", () => tab); return tab; };
"""


def test_a_trace_that_cannot_be_made_is_not_said_to_be_there(
    serving: server.PageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(serving, "trace", full)
    with browser.browsing(tmp_path / "profile") as context:
        page = context.new_page()
        page.add_init_script(STAND_IN)
        page.goto(f"{serving.url}{server.HAND_OVER}")
        page.get_by_role("button").press("Enter")
        page.get_by_text("The trace could not be made").wait_for()


def test_perfetto_gets_the_trace_once_it_answers(serving: server.PageServer, tmp_path: Path) -> None:
    """In a real browser; the tab of Perfetto is a stand-in that takes part in its protocol."""
    with browser.browsing(tmp_path / "profile") as context:
        page, trouble = context.new_page(), []
        page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.add_init_script(STAND_IN)
        page.goto(f"{serving.url}{server.HAND_OVER}")
        page.get_by_role("button").press("Enter")
        page.get_by_text("Perfetto has the trace").wait_for()
        handed = page.evaluate("window.handed")

    assert {origin for _, origin in handed} == {server.PERFETTO}
    assert handed[-1][0] == serving.trace().stat().st_size
    assert trouble == []


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_verb_says_where_it_is_and_ends_by_ctrl_c_or_with_its_terminal(
    run: Path, end: signal.Signals, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "mstxkit", "report", str(run), "--open", "--no-browser"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    assert list(tmp_path.glob("mstxkit-page-*"))

    process.send_signal(end)
    _, errors = process.communicate(timeout=60)
    assert list(tmp_path.glob("mstxkit-page-*")) == []

    assert lines[1].startswith("http://127.0.0.1:")
    assert process.returncode == 0, errors
    assert errors == ""


def test_no_other_user_of_the_host_sees_the_secret_in_what_the_browser_is_started_with(
    run: Path, tmp_path: Path
) -> None:
    script, words, page = (tmp_path / name for name in ("browser", "words", "page"))
    script.write_text(f'#!/bin/sh\ncp "${{1#file://}}" {page}\necho "$@" >{words}.part\nmv {words}.part {words}\n')
    script.chmod(0o700)
    command = [sys.executable, "-m", "mstxkit", "report", str(run), "--open"]
    environment = {**os.environ, "BROWSER": f"{script} %s", "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    address = [process.stdout.readline() for _ in range(3)][1].strip()
    until = time.monotonic() + 30
    while not words.exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert address.startswith("http://127.0.0.1:")
    assert address.split("/")[3] not in words.read_text()
    assert f"url={address}" in page.read_text()


def test_how_far_the_trace_has_come_is_shown_the_first_time(run: Path, tmp_path: Path) -> None:
    steps: list[float] = []

    def showing(rows: float) -> AbstractContextManager[Callable[[float], None]]:
        steps.append(-rows)
        return nullcontext(steps.append)

    with served(run, tmp_path, showing) as serving:
        answers = [asked(serving, f"/{serving.token}/trace") for _ in range(2)]

    assert [answer.status for answer in answers] == [200, 200]
    assert sum(steps) == 0 and len(steps) > 1


def test_a_trace_that_is_being_made_is_given_up_when_it_ends(run: Path, tmp_path: Path) -> None:
    began, answers = threading.Event(), list[http.client.HTTPResponse]()

    def advance(rows: float) -> None:
        began.set()
        assert serving.is_over.wait(30)

    with served(run, tmp_path, lambda rows: nullcontext(advance)) as serving:
        client = threading.Thread(target=lambda: answers.append(asked(serving, f"/{serving.token}/trace")))
        client.start()
        assert began.wait(30)
    client.join()

    assert [answer.status for answer in answers] == [500]
    assert [path.name for path in tmp_path.glob("trace*")] == ["trace.partial"]  # gone with its folder, as ever


def test_on_a_terminal_the_verb_shows_how_far_the_trace_has_come(run: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mstxkit", "report", str(run), "--open", "--no-browser"]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment)
    os.close(theirs)
    assert process.stdout is not None
    address = [process.stdout.readline() for _ in range(2)][1].strip()
    host, _, path = address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.request("GET", f"/{path}trace")
    status = connection.getresponse().status
    connection.close()
    process.send_signal(signal.SIGINT)
    shown = all_of(ours)
    process.communicate(timeout=60)

    assert (status, process.returncode) == (200, 0)
    assert "Writing the trace" in shown
    assert shown.rfind(HIDDEN) < shown.rfind(SHOWN_AGAIN)
