"""The live page and the metrics: in applications of Tornado, in others, and beside any program; who may see them."""

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
import tornado.httpclient
import tornado.httpserver
import tornado.testing
import tornado.web

from tornado.stm import activation, conflictlog, core, dashboard

activation.activate()


def get(url, **headers):
    """Status, content type, text."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.headers["Content-Type"], e.read().decode()


@pytest.fixture(scope="module")
def served():
    port = dashboard.serve(0)
    yield f"http://127.0.0.1:{port}"
    conflictlog.stop()


def test_page_beside_any_program(served):
    status, kind, text = get(f"{served}/stm")
    assert (status, kind) == (200, "text/html; charset=utf-8") and "<title>Conflicts</title>" in text
    assert get(f"{served}/")[0] == get(f"{served}/stm/nothing")[0] == 404


@pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time: there is no log")
def test_data_follow_the_run(served):
    def committed():
        data = json.loads(get(f"{served}/stm/data")[2])
        return next((int(line.split()[1]) for line in data.get("summary", ()) if line.startswith("Transactions:")), 0)

    for _ in range(20):
        core.Transaction(int, ()).run()
    give_up = time.monotonic() + 60
    while (before := committed()) < 20:
        assert time.monotonic() < give_up
    for _ in range(30):
        core.Transaction(int, ()).run()
    while committed() < before + 30:
        assert time.monotonic() < give_up


@pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time: there is no log")
def test_modules_in_the_folder_that_the_program_is_in_have_no_part_in_it(served, tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the program')")
    monkeypatch.chdir(tmp_path)
    core.Transaction(int, ()).run()
    give_up = time.monotonic() + 60
    while "threads" not in (data := json.loads(dashboard._Latest().get())):  # what is told is in the log after a moment
        assert time.monotonic() < give_up, data


def test_metrics(served):
    pytest.importorskip("prometheus_client")
    from prometheus_client.parser import text_string_to_metric_families

    def samples():
        status, kind, text = get(f"{served}/stm/metrics")
        assert status == 200 and kind.startswith("text/plain")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        return {name: [(sample.labels, sample.value) for sample in family.samples] for name, family in families.items()}

    before = samples()
    for _ in range(7):
        core.Transaction(int, ()).run()
    after = samples()
    assert after["stm_transactions_committed"][0][1] - before["stm_transactions_committed"][0][1] >= 7
    assert {"stm_transactions_rolled_back", "stm_conflicts", "stm_waited_seconds", "stm_lost_seconds", "stm_inevitable_seconds"} <= set(after)


LOCAL = {"Host": "localhost:8888"}


@pytest.mark.parametrize("client, headers, refused", [
    ("127.0.0.1", LOCAL, False), ("::1", {"Host": "[::1]:80"}, False), ("127.0.0.1", {"Host": "127.0.0.1"}, False), ("", LOCAL, True),
    ("192.0.2.1", LOCAL, True), ("127.0.0.1", {**LOCAL, "X-Forwarded-For": "192.0.2.1"}, True), ("127.0.0.1", {**LOCAL, "Forwarded": ""}, True),
    ("127.0.0.1", {**LOCAL, "Via": "1.1 proxy"}, True), ("example", LOCAL, True), ("127.0.0.1", {"Host": "example.org"}, True),
    ("127.0.0.1", {}, True),
])  # fmt: skip
def test_who_is_refused(client, headers, refused):
    assert dashboard._is_refused(client, headers) is refused


FORKS = """
import os, sys, urllib.request
from tornado.stm import activation, core, dashboard
activation.activate()
url = f"http://127.0.0.1:{dashboard.serve(0)}/stm/data"
core.Transaction(int, ()).run()
if (pid := os.fork()) == 0:
    sys.exit()  # with what is registered for the end
os.waitpid(pid, 0)
core.Transaction(int, ()).run()
print("error" not in urllib.request.urlopen(url).read().decode())
"""


@pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time: there is no log")
def test_the_end_of_a_child_does_not_remove_the_log():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=100)
    assert done.stdout == "True\n", done.stderr


def test_clients_behind_a_proxy_are_refused(served):
    status, _, text = get(f"{served}/stm", **{"X-Forwarded-For": "192.0.2.1"})
    assert status == 403 and len(text.splitlines()) == 1
    port = dashboard.serve(0, path="/", public=True)
    assert get(f"http://127.0.0.1:{port}/", **{"X-Forwarded-For": "192.0.2.1"})[0] == 200


class Hello(tornado.web.RequestHandler):
    def get(self):
        self.write("hello")


def test_page_of_a_tornado_application():
    async def ask():
        application = tornado.web.Application([("/", Hello)])
        dashboard.add(application)
        sockets = tornado.testing.bind_unused_port()
        server = tornado.httpserver.HTTPServer(application)
        server.add_socket(sockets[0])
        client = tornado.httpclient.AsyncHTTPClient(force_instance=True)
        answers = []
        for path, headers in (("/", {}), ("/stm", {}), ("/stm/", {}), ("/stm/data", {}), ("/stm/other", {}), ("/stm", {"X-Real-IP": "192.0.2.1"})):
            response = await client.fetch(f"http://127.0.0.1:{sockets[1]}{path}", headers=headers, raise_error=False)
            answers.append((response.code, response.body[:15]))
        server.stop()
        client.close()
        return answers

    hello, page, again, data, other, refused = asyncio.run(ask())
    assert hello == (200, b"hello") and page == again == (200, b"<!DOCTYPE html>")
    assert data[0] == 200 and data[1].startswith(b"{")
    assert (other[0], refused[0]) == (404, 403)


def test_page_of_an_asgi_application():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})

    async def ask(path, client=("127.0.0.1", 1), headers=()):
        sent = []

        async def send(message):
            sent.append(message)

        await wrapped({"type": "http", "path": path, "client": client, "headers": [(b"host", b"127.0.0.1"), *headers]}, None, send)
        return sent[0]["status"], sent[1]["body"][:15]

    wrapped = dashboard.wrap(app)
    assert asyncio.run(ask("/")) == (200, b"hello") and asyncio.run(ask("/stmx")) == (200, b"hello")
    assert asyncio.run(ask("/stm")) == (200, b"<!DOCTYPE html>")
    assert asyncio.run(ask("/stm/metrics"))[0] in (200, 501)
    assert asyncio.run(ask("/stm", ("192.0.2.1", 1)))[0] == 403
    assert asyncio.run(ask("/stm", headers=[(b"x-forwarded-for", b"192.0.2.1")]))[0] == 403


def test_a_path_begins_with_a_slash():
    for use in (lambda: dashboard.wrap(None, "stm"), lambda: dashboard.add(None, "/"), lambda: dashboard.serve(0, path="stm")):
        with pytest.raises(ValueError, match="slash"):
            use()


@pytest.mark.parametrize("port", [70000, -1])
def test_a_port_is_one_that_there_is(port):
    with pytest.raises(ValueError, match=f"from 0 to 65535: {port}"):
        dashboard.serve(port)


@pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time: there is no log")
def test_page_in_a_browser(served, tmp_path):
    from test_print_stm_log import browser

    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--virtual-time-budget=9000", "--dump-dom"]
    core.Transaction(int, ()).run()
    drawn, give_up = "", time.monotonic() + 120
    while "Transactions:" not in drawn:  # its time passes faster than ours, and the data may come too late for it
        assert time.monotonic() < give_up, drawn
        drawn = subprocess.run([*command, f"{served}/stm"], capture_output=True, text=True, timeout=120).stdout
    assert "asked for every 5 s" in drawn
