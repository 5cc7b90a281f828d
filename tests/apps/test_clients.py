"""Handlers that fetch something over HTTP, by clients that keep their connections: what they get, and what they keep others from."""

import asyncio

import aiohttp
import pytest

from app_process import HOWS, TIMEOUT, App

REQUESTS, CLIENTS = 12, 6


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("client", ["aiohttp", "httpx", "tornado"])
def test_what_follows_a_fetch(client, how):
    pytest.importorskip(client)

    async def ask(app, first):
        async with aiohttp.ClientSession() as session:
            answers = []
            for number in range(first, first + REQUESTS):
                async with session.get(app.url(f"/relay/{number}")) as response:
                    assert response.status == 200, await response.text()
                    answers.append(await response.json())
            return answers

    async def ask_at_once(app):
        return await asyncio.gather(*(ask(app, REQUESTS * n) for n in range(CLIENTS)))

    with App("fetching.py", client, how=how) as app:
        answers = sum(asyncio.run(asyncio.wait_for(ask_at_once(app), TIMEOUT)), [])
    assert [answer["piece"] for answer in answers] == [f"piece {number} " * 100 for number in range(REQUESTS * CLIENTS)]
    if how == "parallel":  # but where something happens for the first time
        assert sum(answer["keeps_others_waiting"] for answer in answers) <= CLIENTS


def test_calls_on_one_connection_are_in_the_service_at_once():
    """Each message is counted for the connection, in the step in which the service would compute with it."""
    pytest.importorskip("grpclib")

    async def answers(app, paths):
        async with aiohttp.ClientSession() as session:

            async def ask(path):
                async with session.get(app.url(path)) as response:
                    return await response.json(content_type=None)

            return await asyncio.gather(*map(ask, paths))

    with App("calls.py", how="parallel") as app:
        for number in range(40):  # that its steps are not short is known by then
            assert asyncio.run(asyncio.wait_for(answers(app, [f"/learn/{number}"]), TIMEOUT)) == [[number, False]]
        assert asyncio.run(asyncio.wait_for(answers(app, ["/meet/1", "/meet/2"]), TIMEOUT)) == [[1, True], [2, True]]
