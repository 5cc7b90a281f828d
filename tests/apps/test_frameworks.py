"""A small site by each of several frameworks, under load: the same answers as on upstream's loop."""

import asyncio
import json
import urllib.parse

import pytest
from tornado.httpclient import HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from app_process import HOWS, TIMEOUT, App
from apps.frameworks import FRAMEWORKS, ROWS
from tornado.stm import core

if not core.PARALLEL:
    HOWS = ["upstream", "ours"]


@pytest.fixture(scope="module", params=[
    pytest.param((name, how), id=f"{name}-{how}", marks=[pytest.mark.long] * (how == "aborts")) for name in FRAMEWORKS for how in HOWS
])  # fmt: skip
def app(request):
    name, how = request.param
    pytest.importorskip(name, reason=f"{name} is not installed")
    with App("frameworks.py", name, how=how) as app:
        yield app


def together(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, TIMEOUT))


async def ask(app, client, path, **form):
    body = urllib.parse.urlencode(form) if form else None
    request = HTTPRequest(app.url(path), "POST" if form else "GET", body=body, connect_timeout=TIMEOUT, request_timeout=TIMEOUT)
    response = await client.fetch(request, raise_error=False)
    return response.code, response.body.decode()


def page(n):
    rows = "".join(f"<li>{row}</li>" for row in range(n))
    return f"<h1>&lt;page {n}&gt;</h1><ul>{rows}</ul>"


def test_requests_of_all_kinds_at_a_time(app):
    async def clients():
        client = SimpleAsyncHTTPClient(force_instance=True, max_clients=20)
        jobs = []
        for i in range(40):
            n = i % (ROWS - 10)
            jobs += [
                ask(app, client, f"/page/{n}"), ask(app, client, "/form", name=f"<{i}>"), ask(app, client, f"/notes/{n}"),
                ask(app, client, f"/error/{n}"), ask(app, client, "/nowhere"),
            ]  # fmt: skip
        answers = await asyncio.gather(*jobs)
        for i in range(40):
            n = i % (ROWS - 10)
            paged, greeted, noted, failed, missing = answers[5 * i : 5 * i + 5]
            assert paged == (200, page(n))
            assert greeted == (200, f"hello, &lt;{i}&gt;")
            assert noted[0] == 200 and json.loads(noted[1]) == [f"{k}: <{k}>" for k in range(n, n + 5)]
            assert failed[0] == 500 and missing[0] == 404

    together(clients())


def test_what_is_noted_is_there_afterwards(app):
    async def clients():
        client = SimpleAsyncHTTPClient(force_instance=True, max_clients=20)
        answers = await asyncio.gather(*(ask(app, client, f"/note/{ROWS - 5 + i % 5}", text=str(i)) for i in range(50)))
        assert answers == [(200, "noted")] * 50
        _, found = await ask(app, client, f"/notes/{ROWS - 5}")
        last = [row.split(": ") for row in json.loads(found)]
        assert all(int(text) % 5 == int(k) - (ROWS - 5) for k, text in last)
        for k, _ in last:
            await ask(app, client, f"/note/{k}", text=f"<{k}>")

    together(clients())
