"""The page that Prometheus scrapes: nobody who connects holds anything up, nobody without the token sees it."""

from __future__ import annotations

import http.client
import socket
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest

from mstxkit.store.metrics_setting import Address
from mstxkit.telemetry import endpoint as module
from mstxkit.telemetry.endpoint import CONNECTIONS_AT_MOST, Endpoint, serve_page

PAGE = b"mstxkit_step 1\n"
Serve = Callable[..., Endpoint]


@pytest.fixture
def serve() -> Iterator[Serve]:
    opened: list[Endpoint] = []

    def begin(port: int = 0, token: str = "", page: bytes = PAGE, host: str = "127.0.0.1") -> Endpoint:
        opened.append(serve_page(Address(host, port), lambda: page, token))
        return opened[-1]

    yield begin
    for served in opened:
        served.close()


def get(served: Endpoint, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.address.port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_page_is_served_and_nothing_else(serve: Serve) -> None:
    served = serve()

    assert get(served) == (200, PAGE)
    assert get(served, "/metrics?x=1") == (200, PAGE)
    assert get(served, method="HEAD") == (200, b"")
    assert get(served, "/../../etc/passwd")[0] == 404
    assert get(served, method="POST")[0] == 501


def test_a_port_that_is_taken_is_left_to_who_has_it(serve: Serve) -> None:
    first = serve()
    second = serve(first.address.port)

    assert second.address.port != first.address.port
    assert get(first)[0] == get(second)[0] == 200


def test_who_comes_next_has_the_port_again_that_was_just_scraped(serve: Serve) -> None:
    """As where a job is started again, or another one judges it: Prometheus was told that port."""
    first = serve()
    get(first)
    first.close()

    assert serve(first.address.port).address.port == first.address.port


@pytest.mark.parametrize("shown", ["", "Bearer", "Bearer wrong", "Basic c2VjcmV0", "Bearer s\u00e9cret", "secret"])
def test_without_the_token_nothing_is_shown(serve: Serve, shown: str) -> None:
    status, page = get(serve(token="secret"), Authorization=shown)

    assert status == 401
    assert b"mstxkit_step" not in page
    assert b"secret" not in page


def test_with_the_token_it_is(serve: Serve) -> None:
    assert get(serve(token="secret"), Authorization="Bearer secret") == (200, PAGE)


@pytest.mark.parametrize("host", ["evil.example", "127.evil.example", "127.0.0.1.evil.example:9464", "127.", "[::]"])
def test_a_page_in_a_browser_that_calls_loopback_by_a_name_of_its_own_sees_nothing(serve: Serve, host: str) -> None:
    assert get(serve(), Host=host) == (403, b"this is served on loopback only\n")


def test_whoever_calls_loopback_by_its_own_names_sees_the_page(serve: Serve) -> None:
    served = serve()

    assert get(served, Host=f"localhost:{served.address.port}")[0] == 200
    assert get(served, Host=f"127.1.2.3:{served.address.port}")[0] == 200
    assert get(served, Host="[::1]")[0] == 200


def test_scrapers_that_never_read_hold_up_nobody(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTION_S", 0.5)
    served = serve(page=b"x" * (32 << 20))
    stuck = []
    for _ in range(CONNECTIONS_AT_MOST):
        stuck.append(socket.create_connection(("127.0.0.1", served.address.port)))
        stuck[-1].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")

    assert _answers_within(served, 20.0)
    for connection in stuck:
        connection.close()


def test_who_says_a_word_now_and_then_has_only_so_much_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTION_S", 0.5)
    with socket.create_connection(("127.0.0.1", serve().address.port)) as slow:
        slow.settimeout(0.1)
        deadline = time.monotonic() + 20.0
        while not _is_cut_off(slow):
            assert time.monotonic() < deadline


def test_who_serves_sleeps_while_nobody_is_connected(serve: Serve) -> None:
    served = serve()
    assert get(served) == (200, PAGE)
    schedstat = Path(f"/proc/self/task/{served._thread.native_id}/schedstat")
    time.sleep(1.0)  # until who was connected is not any more
    before = schedstat.read_text().split()[2]
    time.sleep(1.5)

    assert schedstat.read_text().split()[2] == before, "it was given a CPU"


def _is_cut_off(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"X")
        return connection.recv(1) == b""
    except socket.timeout:
        return False
    except OSError:
        return True


def _answers_within(served: Endpoint, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if get(served)[0] == 200:
                return True
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
    return False


def test_who_sends_rubbish_is_answered_and_the_next_one_too(serve: Serve) -> None:
    served = serve()
    for rubbish in (b"\0" * 100, b"GET " + b"x" * 70_000 + b" HTTP/1.0\r\n\r\n", b"\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", served.address.port)) as connection:
            connection.sendall(rubbish)

    assert get(served) == (200, PAGE)


def test_it_is_closed_while_somebody_is_being_served(serve: Serve) -> None:
    served = serve(page=b"x" * (32 << 20))
    with socket.create_connection(("127.0.0.1", served.address.port)) as stuck:
        stuck.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        stuck.recv(10)
        served.close()

        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", served.address.port), timeout=5).close()
