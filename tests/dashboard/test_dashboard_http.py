"""The dashboard over HTTP: what it answers, and what it refuses."""

import http.client
import io
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from fl_platform.cli import dashboard
from fl_platform.dashboard import app, server
from fl_platform.dashboard.server import bind, served
from fl_platform.errors import UserError
from tests.dashboard.made_runs import HOSTILE, make_old, rows, write_rows, write_run

Reply = tuple[int, dict[str, str], bytes]


class Site:
    def __init__(self, root: Path, address: str, store: Any) -> None:
        self.root, self.address, self.store = root, address, store

    def ask(self, path: str, method: str = "GET", host: str | None = None) -> Reply:
        place = urlsplit(self.address)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", place.netloc if host is None else host)
        connection.endheaders()
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        return reply.status, {name.lower(): value for name, value in reply.getheaders()}, body

    def get(self, path: str) -> dict[str, Any]:
        status, _, body = self.ask(path)
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("served")
    for name in ("fedavg", "gradma"):
        for seed in range(2):
            write_run(root, f"{name}-{seed}", name, seed)
    write_run(root, "odd", HOSTILE, status="diverged", tracking={"tags": [HOSTILE]})
    make_old(root)
    with served(root) as (address, store):
        yield Site(root, address, store)


def test_every_answer_carries_the_safety_headers(site: Site) -> None:
    for path in ("/", "/api/overview", "/static/app.js", "/static/absent", "/nowhere", "/api/run"):
        _, headers, _ = site.ask(path)
        for name, value in app.HEADERS.items():
            assert headers[name.lower()] == value, path
    policy = app.HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1]"])
def test_a_foreign_host_is_refused(site: Site, host: str) -> None:
    for path in ("/", "/api/overview", "/static/app.js"):
        status, _, body = site.ask(path, host=host)
        assert status == 400
        assert b"fedavg" not in body


def test_names_of_this_machine_are_served(site: Site) -> None:
    for host in ("localhost:1234", "127.0.0.1"):
        assert site.ask("/", host=host)[0] == 200


def test_it_listens_on_loopback_only() -> None:
    with bind(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading(site: Site, method: str) -> None:
    for path in ("/", "/api/overview", "/static/app.js"):
        assert site.ask(path, method)[0] == 405


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/%5c..%5capp.py",
     "/static//etc/passwd", "/../../etc/passwd", "/static/%00", "/static/"],
)  # fmt: skip
def test_only_the_files_of_the_page_are_served(site: Site, path: str) -> None:
    status, _, body = site.ask(path)
    assert status in (400, 404)
    assert b"root:" not in body
    assert b"Starlette" not in body


@pytest.mark.parametrize("run_id", ["../odd", "..%2f..%2fetc", "absent", "", "odd/attempts"])
def test_a_run_is_looked_up_never_opened(site: Site, run_id: str) -> None:
    status, _, body = site.ask(f"/api/run?id={run_id}")
    assert status == 400
    assert "is no run that is known here" in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("overview?since=-1", "since=-1 is not allowed"),
        ("overview?since=%F0%9F%98%80", "must be a whole number"),
        ("lines?axis=epochs", "axis=epochs is not known; allowed: bytes, rounds, seconds"),
        ("lines?points=1e9", "points=1e9 is not allowed"),
        ("lines?from=here", "from=here is not a number"),
        ("tables?value=best", "value=best is not known"),
        ("tables?target=high", "target=high is not a number"),
        ("select?q=num_ronds%3D1", "no run has a key or figure 'num_ronds'; did you mean"),
        ("lines?q=seed%3E%3D", "'seed>=' has no value after it"),
        ("importance?objective=nothing", "no run has a key or figure 'nothing'"),
        ("importance?q=gradma&objective=top", "importance needs at least 10 runs"),
    ],
)
def test_bad_words_get_one_sentence(site: Site, args: str, message: str) -> None:
    status, _, body = site.ask(f"/api/{args}")
    assert status == 400
    assert message in json.loads(body)["error"]


def test_overview_then_only_what_changed(site: Site) -> None:
    whole = site.get("/api/overview")
    assert {run["id"] for run in whole["runs"]} == {"fedavg-0", "fedavg-1", "gradma-0", "gradma-1", "odd"}
    assert whole["full"]
    assert whole["is_looking"]
    nothing = site.get(f"/api/overview?since={whole['version']}")
    assert (nothing["runs"], nothing["full"]) == ([], False)
    path = write_run(site.root, "late", status=None, made=rows(rounds=2))
    site.store.look()
    news = site.get(f"/api/overview?since={whole['version']}")
    assert [(run["id"], run["round"]) for run in news["runs"]] == [("late", 2)]
    write_rows(path, rows(rounds=3)[2:], "a")
    site.store.look()
    assert [run["round"] for run in site.get(f"/api/overview?since={news['version']}")["runs"]] == [3]


def test_lines_are_thinned_and_a_window_is_finer(site: Site) -> None:
    made = [{"round": number, "test/accuracy": number % 7 / 10} for number in range(1, 3001)]
    write_run(site.root, "long", made=made)
    site.store.look()
    (whole,) = site.get("/api/lines?ids=long&points=50")["lines"]
    assert len(whole["x"]) <= 50
    assert (whole["x"][0], whole["x"][-1]) == (1, 3000)
    assert (min(whole["mean"]), max(whole["mean"])) == (0, 0.6)
    (part,) = site.get("/api/lines?ids=long&points=50&from=100&to=120")["lines"]
    assert part["x"] == list(range(99, 122))
    assert part["mean"] == [number % 7 / 10 for number in range(99, 122)]
    (capped,) = site.get("/api/lines?ids=long&points=999999")["lines"]
    assert len(capped["x"]) <= 2000


def test_lines_of_many_named_runs(site: Site) -> None:
    ids = ",".join(["fedavg-0", "gradma-1", *(f"{number:012x}" for number in range(2000))])
    found = site.get(f"/api/lines?by=run&ids={quote(ids)}")["lines"]
    assert [line["label"] for line in found] == ["FedAvg, seed 0 (fedavg-0)", "GradMA, seed 1 (gradma-1)"]


def test_smoothed_lines_come_with_the_raw_ones(site: Site) -> None:
    (plain,) = site.get("/api/lines?ids=fedavg-0&by=run")["lines"]
    (smooth,) = site.get("/api/lines?ids=fedavg-0&by=run&smooth=5")["lines"]
    assert "raw" not in plain
    assert smooth["raw"] == {"x": plain["x"], "mean": plain["mean"]}
    assert smooth["mean"][-1] == pytest.approx(sum(plain["mean"][-5:]) / 5, abs=1e-5)


def test_a_selection_has_ids_columns_and_what_differs(site: Site) -> None:
    found = site.get(f"/api/select?q={quote('id=fedavg-*,gradma-*')}&columns=top,num_rounds,no.such")
    assert sorted(found["ids"]) == ["fedavg-0", "fedavg-1", "gradma-0", "gradma-1"]
    assert found["differing"] == ["algorithm.name", "seed"]
    assert found["settings"] == []
    assert found["columns"]["num_rounds"] == {"values": [20.0], "codes": [0, 0, 0, 0]}
    assert "no.such" not in found["columns"]
    top = found["columns"]["top"]
    assert len(top["codes"]) == 4
    assert all(0 < top["values"][code] <= 1 for code in top["codes"])
    assert {"test/accuracy", "train/loss"} <= set(found["figures"])
    assert site.get("/api/select?q=nosuchword")["ids"] == []


def test_a_run_has_the_accuracy_of_its_classes(site: Site) -> None:
    made = [{**one, "test/class_accuracy": [0.5, 0.25]} for one in rows(rounds=2)]
    path = write_run(site.root, "classes", status=None, made=made)
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"round": 3, "test/cla')  # a row that is being written
    site.store.look()
    assert site.get("/api/run?id=classes")["classes"] == [0.5, 0.25]
    assert site.get("/api/run?id=fedavg-0")["classes"] == []


def test_tables_one_and_two(site: Site) -> None:
    ids = "ids=fedavg-0,fedavg-1,gradma-0,gradma-1"
    found = site.get(f"/api/tables?{ids}")
    assert found["first"]["files"]["tex"].startswith("% needs")
    assert found["first"]["files"]["csv"].startswith("algorithm,")
    assert found["first"]["title"] == "Top test accuracy (%)"
    labels = [line[0] for block in found["first"]["blocks"] for line in block]
    assert labels == ["FedAvg", "GradMA"]
    assert found["second"]["header"][-1] == [["ac=50%", 1]]
    assert site.get(f"/api/tables?{ids}&target=0.3")["second"]["header"][-1] == [["ac=30%", 1]]
    wrong = site.get(f"/api/tables?{ids}&unit=miles")
    assert "unit=miles is not known" in wrong["second"]["error"]
    assert site.get("/api/tables?ids=none")["first"]["notes"][0] == "No finished run."


def test_the_partition_of_a_run(site: Site) -> None:
    found = site.get("/api/partition?id=fedavg-0")
    assert found["workers"] == len(found["counts"]) == 20
    assert sum(map(sum, found["counts"])) == 1437
    assert site.get("/api/partition?id=gradma-0") == found, "the algorithm does not matter"


def test_hostile_text_is_data(site: Site) -> None:
    _, headers, body = site.ask("/api/run?id=odd")
    assert headers["content-type"] == "application/json"
    assert HOSTILE in json.loads(body)["tags"]


def test_the_page_writes_text_only_as_text() -> None:
    own = [path for path in app.STATIC.glob("*.js") if not path.name.startswith("uplot")]
    assert len(own) >= 20
    for path in own:
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc", text
        )


def test_every_module_is_short_and_imported() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in app.STATIC.glob("*.js")}
    own = {name: text for name, text in texts.items() if not name.startswith("uplot")}
    assert max(text.count("\n") for text in own.values()) < 350
    imported = {name for text in own.values() for name in re.findall(r'from "\./(\w+\.js)"', text)}
    assert imported | {"app.js", "page.js"} == set(own)


def test_the_page_asks_no_other_machine() -> None:
    for path in app.STATIC.iterdir():
        found = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", path.read_text(encoding="utf-8")))
        assert found <= {"http://www.w3.org/2000/svg", "https://github.com/leeoniya/uPlot"}, path


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match=r"--port \d+ is in use; give another, or 0"):
            bind(taken.getsockname()[1])


def test_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="no such directory"):
        dashboard.main([str(tmp_path / "absent"), "--no-browser"])
    with pytest.raises(SystemExit):
        dashboard.main(["--port", "99999"])
    assert "99999 is not a port" in capsys.readouterr().err


@pytest.mark.parametrize("sent", [b"", b"GET / HT"])
def test_a_connection_without_a_whole_request_is_closed(
    site: Site, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.4)
    place = urlsplit(site.address)
    with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
        for byte in sent:  # more bytes win no time
            connection.sendall(bytes([byte]))
            time.sleep(0.02)
        assert connection.recv(100) == b""
    assert site.get("/api/overview")["runs"]


def test_a_second_request_on_a_connection_must_be_whole_in_time_too(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.4)
    place = urlsplit(site.address)
    with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
        connection.sendall(f"GET /nowhere HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
        answer = b""
        while b"Not Found" not in answer.rpartition(b"\r\n\r\n")[2]:
            answer += connection.recv(10_000)
        connection.sendall(b"GET /")
        assert connection.recv(100) == b""


def test_many_tables_at_once_are_made_in_turn_or_put_off_while_the_rest_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, threads, gate = [], set(), threading.Event()

    def slow(*arguments: Any) -> dict[str, Any]:
        gate.wait(20)
        threads.add(threading.current_thread().name)
        made.append(arguments)
        return {}

    monkeypatch.setattr("fl_platform.dashboard.views._tables", slow)
    replies: list[Reply] = []
    asking = [
        threading.Thread(target=lambda target=target: replies.append(site.ask(f"/api/tables?target=0.{target}")))
        for target in range(10, 40)
    ]
    for thread in asking:
        thread.start()
    deadline = time.monotonic() + 20
    while len(replies) < len(asking) - app.MOST_WAITING and time.monotonic() < deadline:
        time.sleep(0.01)
    assert site.get("/api/overview")["runs"], "answered while every place for tables is taken"
    gate.set()
    for thread in asking:
        thread.join(20)
    codes = sorted(status for status, _, _ in replies)
    assert codes == [200] * app.MOST_WAITING + [503] * (len(asking) - app.MOST_WAITING)
    assert len(made) == app.MOST_WAITING
    assert len(threads) == 1
    put_off = next(reply for reply in replies if reply[0] == 503)
    assert "try again" in json.loads(put_off[2])["error"]
    assert put_off[1]["retry-after"] == "1"


def test_serving_closes_no_handler_of_this_process(tmp_path: Path) -> None:
    """As absl's, which closes the stream it writes to."""
    closed: list[bool] = []
    handler = logging.StreamHandler(io.StringIO())
    handler.close = lambda: closed.append(True)  # type: ignore[method-assign]
    with served(tmp_path) as (address, store):
        assert Site(tmp_path, address, store).ask("/")[0] == 200
    assert not closed
