"""FastAPI and SQLAlchemy at full load for ten minutes: money is neither made nor lost, no answer is missing, memory stays flat.

SOAK_SECONDS in the environment is how long (default 600).
"""

import asyncio
import json
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from tornado.httpclient import HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from app_process import HOWS, TIMEOUT, App
from tornado.stm import core

for name in "fastapi", "uvicorn", "sqlalchemy", "aiosqlite", "greenlet":
    pytest.importorskip(name)

SECONDS = float(os.environ.get("SOAK_SECONDS", 600))
CLIENTS = 10
ACCOUNTS, EACH = 20, 1000  # as in apps/bank_api.py
LOOKS = 20  # times that memory is looked at; the first quarter is for warming up
GROWTH = 16 << 20


def check(amount):
    return sum(number * amount % 7 for number in range(3000))


class Clients:
    """They move money until it is over, and know what they have been told."""

    def __init__(self, app, seed):
        self.app, self.choose, self.counts, self.memory = app, random.Random(seed), Counter(), []
        self.client = SimpleAsyncHTTPClient(
            force_instance=True, max_clients=CLIENTS + 1, defaults={"connect_timeout": TIMEOUT, "request_timeout": TIMEOUT}
        )

    async def ask(self, path, **form):
        request = HTTPRequest(self.app.url(path))
        if form:
            request = HTTPRequest(self.app.url(path), "POST", {"Content-Type": "application/json"}, json.dumps(form))
        response = await self.client.fetch(request, raise_error=False)
        return response.code, json.loads(response.body)

    async def move(self, until):
        while time.monotonic() < until:
            amount = self.choose.choice([1, 7, 30, 400, 0])
            wish = {"source": self.choose.randrange(ACCOUNTS), "target": self.choose.randrange(ACCOUNTS), "amount": amount}
            code, told = await self.ask("/moves", **wish)
            self.counts[code] += 1
            assert code in ([422] if amount == 0 else [200, 409]), (code, told)
            assert code != 200 or told["checked"] == check(amount)
            if self.choose.random() < 0.1:
                code, told = await self.ask("/totals")
                assert (code, told["total"]) == (200, ACCOUNTS * EACH)

    async def watch(self, until):
        step = (until - time.monotonic()) / LOOKS
        while time.monotonic() < until:
            await asyncio.sleep(step)
            self.memory.append(resident(self.app.process.pid))

    async def run(self, seconds):
        until = time.monotonic() + seconds
        await asyncio.gather(self.watch(until), *(self.move(until) for _ in range(CLIENTS)))
        return (await self.ask("/totals"))[1]


def resident(pid):
    """Bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def money_stays(app, seconds):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    clients = Clients(app, seed)
    totals = asyncio.run(clients.run(seconds))
    counts = clients.counts
    print(dict(counts), "MB:", [size >> 20 for size in clients.memory])
    assert counts[200] > 0 and counts[422] > 0
    assert totals == {"total": ACCOUNTS * EACH, "moves": counts[200], "answered": {"moved": counts[200], "refused": counts[409]}}
    return clients


@pytest.mark.parametrize("how", [pytest.param(how, marks=[pytest.mark.long] * (how == "aborts")) for how in HOWS])
def test_money_is_neither_made_nor_lost(how, tmp_path):
    if how not in ("upstream", "ours") and not core.PARALLEL:
        pytest.skip("transactions run one at a time")
    with App("bank_api.py", tmp_path / "bank.db", how=how) as app:
        money_stays(app, 3)


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 300)
def test_at_full_load_memory_stays_flat(tmp_path):
    with App("bank_api.py", tmp_path / "bank.db") as app:
        clients = money_stays(app, SECONDS)
        assert clients.memory[-1] - clients.memory[LOOKS // 4] < GROWTH, clients.memory
        assert app.stderr() == "" or "Traceback" not in app.stderr()
