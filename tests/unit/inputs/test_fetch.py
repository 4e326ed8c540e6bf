"""Fetching inputs over HTTP: mirrors, resumption, verification, cancellation, and errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from builder import __version__
from builder.errors import NetworkError, PinError
from builder.inputs.fetch import Hosts, fetch
from builder.model.inputs import FetchEvent
from builder.store.store import Store
from tests.support.errors import fails
from tests.support.fetching import DATA, get
from tests.support.http_server import Server, body, broken, deb, silent, slow, status, wait_until

PATH = "/debian/pool/main/t/tool/tool_1%2Bb1_arm64.deb"


def debian(*servers: Server) -> Hosts:
    return Hosts(debian=tuple(f"{server.address}/debian" for server in servers))


def leftovers(store: Store) -> list[Path]:
    return [*store.tmp.iterdir(), *(path for path in (store.root / "blobs").rglob("*") if path.is_file())]


def test_a_file_is_verified_and_requested_by_its_quoted_path(store: Store, server: Server) -> None:
    server.on(PATH, body(DATA))
    events = get(store, deb(DATA), hosts=debian(server))
    assert store.read(deb(DATA).digest) == DATA
    assert [event.state for event in events] == ["start", "done"]
    assert (events[-1].name, events[-1].received, events[-1].total) == ("tool_1+b1_arm64.deb", 300_000, 300_000)
    assert server.asked[0][1]["User-Agent"] == f"builder/{__version__}"
    assert list(store.tmp.iterdir()) == []


def test_an_input_in_the_store_is_not_fetched_even_offline(store: Store, server: Server) -> None:
    store.put(DATA)
    assert [event.state for event in get(store, deb(DATA), hosts=debian(server), offline=True)] == ["cached"]
    assert server.asked == []


def test_one_hash_under_two_names_is_fetched_once(store: Store, server: Server) -> None:
    server.on(PATH, body(DATA))
    get(store, deb(DATA), deb(DATA, name="again 1"), hosts=debian(server))
    assert server.count(PATH) == 1


def test_offline_names_the_missing_input_and_the_next_step(store: Store) -> None:
    with fails(PinError, "input-missing-offline") as caught:
        get(store, deb(DATA), hosts=Hosts(), offline=True)
    assert "tool 1+b1" in caught.value.what
    assert "without --offline" in caught.value.next


def test_many_files_in_parallel(store: Store, server: Server) -> None:
    files = {f"pool/f{number}.deb": DATA[number:] for number in range(40)}
    for path, data in files.items():
        server.on(f"/debian/{path}", body(data))
    events = get(store, *(deb(data, path) for path, data in files.items()), hosts=debian(server))
    assert sum(event.state == "done" for event in events) == 40
    assert all(store.has(deb(data).digest) for data in files.values())


def test_progress_runs_in_the_calling_thread_and_counts_bytes(store: Store, server: Server) -> None:
    data = bytes(5 << 20)
    server.on(PATH, body(data))
    seen: list[tuple[int, str, int]] = []
    fetch(
        store,
        [deb(data)],
        offline=False,
        progress=lambda event: seen.append((threading.get_ident(), event.state, event.received)),
        hosts=debian(server),
    )
    assert {thread for thread, _, _ in seen} == {threading.get_ident()}
    received = [count for _, state, count in seen if state == "progress"]
    assert len(received) >= 2
    assert received == sorted(received)


# --- transient failures ---


def test_a_broken_transfer_is_resumed_where_it_broke(store: Store, server: Server) -> None:
    server.on(PATH, broken(DATA, 200_000), body(DATA))
    get(store, deb(DATA), hosts=debian(server))
    assert store.read(deb(DATA).digest) == DATA
    assert server.asked[1][1]["Range"] == "bytes=200000-"


def test_a_broken_transfer_is_resumed_from_another_mirror(store: Store, server: Server, other: Server) -> None:
    server.on(PATH, broken(DATA, 200_000))
    other.on(PATH, body(DATA))
    get(store, deb(DATA), hosts=debian(server, other))
    assert store.read(deb(DATA).digest) == DATA
    assert other.asked[0][1]["Range"] == "bytes=200000-"


def test_a_server_without_ranges_gives_the_whole_file_again(store: Store, server: Server) -> None:
    server.on(PATH, broken(DATA, 200_000), body(DATA, ranges=False))
    get(store, deb(DATA), hosts=debian(server))
    assert store.read(deb(DATA).digest) == DATA


def test_a_resume_with_other_bytes_starts_over(store: Store, server: Server) -> None:
    server.on(PATH, broken(bytes(300_000), 200_000), body(DATA))
    get(store, deb(DATA), hosts=debian(server))
    assert store.read(deb(DATA).digest) == DATA
    assert [("Range" in headers) for _, headers in server.asked] == [False, True, False]


def test_retry_after_is_respected(store: Store, server: Server) -> None:
    server.on(PATH, status(429, Retry_After="1"), body(DATA))
    start = time.monotonic()
    get(store, deb(DATA), hosts=debian(server))
    assert 1.0 <= time.monotonic() - start < 3


def test_a_failing_server_gets_three_requests(store: Store, server: Server) -> None:
    server.on(PATH, status(503))
    with fails(NetworkError, "input-unreachable"):
        get(store, deb(DATA), hosts=debian(server))
    assert server.count(PATH) == 3


def test_redirects_are_followed(store: Store, server: Server, other: Server) -> None:
    server.on(PATH, status(302, Location=f"{other.address}/elsewhere"))
    other.on("/elsewhere", body(DATA))
    get(store, deb(DATA), hosts=debian(server))
    assert store.has(deb(DATA).digest)


def test_a_body_with_content_encoding_is_stored_undecoded(store: Store, server: Server) -> None:
    """Some mirrors label a .tar.gz as a compressed answer; the lock's hash is that of the compressed bytes."""
    import gzip

    data = gzip.compress(DATA)
    server.on(PATH, lambda handler: handler.reply(200, {"Content-Encoding": "gzip"}, data))
    get(store, deb(data), hosts=debian(server))
    assert store.read(deb(data).digest) == data


# --- permanent failures ---


def test_a_vanished_file_is_a_pin_error_that_names_the_snapshot_option(
    store: Store, server: Server, other: Server
) -> None:
    with fails(PinError, "input-vanished") as caught:
        get(store, deb(DATA), hosts=debian(server, other))
    assert "tool 1+b1" in caught.value.what
    assert "BUILDER_DEB_SNAPSHOT" in caught.value.next
    assert (server.count(PATH), other.count(PATH)) == (1, 1)


def test_a_package_gone_from_the_mirrors_comes_from_a_snapshot_archive(
    store: Store, server: Server, other: Server
) -> None:
    other.on("/snap/20261121T000000Z/pool/main/t/tool/tool_1%2Bb1_arm64.deb", body(DATA))
    hosts = Hosts(debian=(f"{server.address}/debian",), snapshots=(f"{other.address}/snap",))
    get(store, deb(DATA), hosts=hosts)
    assert store.has(deb(DATA).digest)


@pytest.mark.parametrize("served", [bytes(300_000), DATA[:-1], DATA + b"!", b"<html>log in</html>"])
def test_a_digest_mismatch_is_a_pin_error_and_leaves_nothing(store: Store, server: Server, served: bytes) -> None:
    server.on(PATH, body(served))
    with fails(PinError, "input-mismatch"):
        get(store, deb(DATA), hosts=debian(server))
    assert leftovers(store) == []
    assert server.count(PATH) == 1


def test_a_mismatch_on_one_mirror_does_not_hide_another_mirror(store: Store, server: Server, other: Server) -> None:
    server.on(PATH, body(bytes(300_000)))
    other.on(PATH, body(DATA))
    get(store, deb(DATA), hosts=debian(server, other))
    assert store.has(deb(DATA).digest)


def test_an_endless_body_is_cut_off(store: Store, server: Server) -> None:
    stop = threading.Event()

    def endless(handler: object) -> None:
        handler.send_response(200)  # type: ignore[attr-defined]
        handler.end_headers()  # type: ignore[attr-defined]
        while not stop.is_set():
            handler.wfile.write(bytes(1 << 16))  # type: ignore[attr-defined]

    server.on(PATH, endless)
    with fails(PinError, "input-mismatch"):
        get(store, deb(DATA), hosts=debian(server))
    stop.set()
    assert leftovers(store) == []


def test_no_reachable_mirror_is_a_network_error_that_names_all_mirrors_without_credentials(store: Store) -> None:
    hosts = Hosts(debian=("http://me:secret@127.0.0.1:1/debian",), snapshots=("http://127.0.0.1:2/snap?token=secret",))
    with fails(NetworkError, "input-unreachable") as caught:
        get(store, deb(DATA), hosts=hosts)
    text = str(caught.value)
    assert "debian http://127.0.0.1:1/debian/pool" in text
    assert "snapshot http://127.0.0.1:2/snap" in text
    assert "secret" not in text


def test_http_403_is_a_network_error_and_not_retried(store: Store, server: Server) -> None:
    server.on(PATH, status(403))
    with fails(NetworkError, "input-unreachable"):
        get(store, deb(DATA), hosts=debian(server))
    assert server.count(PATH) == 1


def test_a_machine_without_mirrors_names_the_package_and_the_variable(store: Store) -> None:
    with fails(PinError, "input-no-mirror") as caught:
        get(store, deb(DATA), hosts=Hosts())
    assert "tool 1+b1" in caught.value.what
    assert "BUILDER_DEB_MIRROR" in caught.value.next


def test_one_failure_stops_the_others(store: Store, server: Server) -> None:
    stop = threading.Event()
    server.on("/debian/pool/slow.deb", slow(DATA, 0.05, stop))
    start = time.monotonic()
    with fails(PinError, "input-vanished"):
        get(store, deb(DATA, "pool/slow.deb"), deb(b"gone"), hosts=debian(server))
    assert time.monotonic() - start < 2
    assert leftovers(store) == []
    stop.set()


# --- cancellation ---


@pytest.mark.parametrize("answer", [lambda stop: slow(DATA, 0.05, stop), silent], ids=["slow", "silent"])
def test_ctrl_c_stops_the_fetch_and_leaves_nothing(
    store: Store, server: Server, answer: Callable[[threading.Event], Callable[[object], None]]
) -> None:
    stop = threading.Event()
    server.on(PATH, answer(stop))

    def interrupt() -> None:
        wait_until(lambda: server.count(PATH) == 1)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        get(store, deb(DATA), hosts=debian(server))
    assert time.monotonic() - start < 4
    assert leftovers(store) == []
    thread.join()
    stop.set()


def test_a_failing_progress_display_ends_the_fetch(store: Store, server: Server) -> None:
    stop = threading.Event()
    server.on(PATH, slow(DATA, 0.05, stop))

    def fail(event: FetchEvent) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fetch(store, [deb(DATA)], offline=False, progress=fail, hosts=debian(server))
    assert leftovers(store) == []
    stop.set()


def test_a_cached_build_imports_no_http_client(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from builder.inputs.fetch import fetch;"
        "from builder.model.inputs import Input;"
        "from builder.store.store import Store; store = Store(Path(sys.argv[1])); digest = store.put(b'x')[7:];"
        "fetch(store, [Input('deb', 'n', 'f', digest, 1, ())], offline=False, progress=lambda event: None);"
        "assert not {'requests', 'urllib3', 'pypi_simple', 'yaml'} & set(sys.modules), 'slow start'"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
