"""A handler that computes keeps nobody else waiting: others are answered while it goes on.  Nothing here depends on time.

It computes until a file is there, which the test makes once the others have been answered.
"""

import asyncio
import ssl

import aiohttp
import pytest
import trustme

from app_process import TIMEOUT, App
from interpreters import needs_engine

needs_engine()

WARM_UP = 10


@pytest.fixture
def there(tmp_path):
    file = tmp_path / "there"
    file.touch()
    return file


@pytest.mark.parametrize("kind", ["http", "https", "aiohttp", "starlette", "fastapi"])
def test_requests_go_on(kind, tmp_path, there):
    trust, arguments = None, [] if kind in ("aiohttp", "starlette", "fastapi") else [tmp_path]
    if kind == "https":
        authority = trustme.CA()
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
        trust, arguments = ssl.create_default_context(), [tmp_path, tmp_path / "server.pem"]
        authority.configure_trust(trust)
    app_name = {"http": "busy.py", "https": "busy.py"}.get(kind, f"busy_{kind}.py")

    async def clients(app):
        async with aiohttp.ClientSession() as session:

            async def ask(file):
                url = app.url(f"/until?file={file}", "https" if trust else "http")
                async with session.get(url, ssl=trust or True) as response:
                    return (await response.json())["rounds"]

            for _ in range(WARM_UP):
                await asyncio.gather(ask(there), ask(there))
            for n in range(3):
                later = tmp_path / f"later{n}"
                busy = asyncio.create_task(ask(later))
                for _ in range(10):
                    assert await ask(there) == 0
                assert not busy.done()
                later.touch()
                await busy

    with App(app_name, *arguments) as app:
        asyncio.run(asyncio.wait_for(clients(app), TIMEOUT))


def test_web_sockets_go_on(tmp_path, there):
    async def clients(app):
        async with aiohttp.ClientSession() as session:
            members = [await session.ws_connect(app.url("/room", "ws")) for _ in range(3)]

            async def say(member, file, listeners):
                await member.send_str(str(file))
                for listener in listeners:
                    assert await listener.receive_str() == str(file)

            for _ in range(WARM_UP):
                for member in members:
                    await say(member, there, members)
            for n in range(3):
                later = tmp_path / f"later{n}"
                busy, *others = members[n:] + members[:n]
                await busy.send_str(str(later))
                for _ in range(5):
                    for member in others:
                        await say(member, there, others)
                later.touch()
                for _ in range(10):
                    assert await busy.receive_str() == str(there)
                for member in members:
                    assert await member.receive_str() == str(later)

    with App("busy.py", tmp_path) as app:
        asyncio.run(asyncio.wait_for(clients(app), TIMEOUT))


LARGE = b"".join(b"%08d" % i for i in range(60_000))


def test_threads_clients_and_files_go_on(tmp_path, there):
    (tmp_path / "large").write_bytes(LARGE)

    async def clients(app):
        async with aiohttp.ClientSession() as session:

            async def ask_all():
                async with session.get(app.url("/thread/47")) as response:
                    assert await response.json() == {"parts": [4, 7]}
                async with session.get(app.url("/relay/47")) as response:
                    assert await response.json() == {"parts": [4, 7]}
                async with session.get(app.url("/files/large")) as response:
                    assert await response.read() == LARGE
                async with session.get(app.url("/files/large"), headers={"Range": "bytes=1000-299999"}) as response:
                    assert await response.read() == LARGE[1000:300_000]

            async def compute_until(file):
                async with session.get(app.url(f"/until?file={file}")) as response:
                    assert response.status == 200

            for _ in range(WARM_UP):
                await asyncio.gather(ask_all(), compute_until(there))
            busy = asyncio.create_task(compute_until(tmp_path / "later"))
            for _ in range(5):
                await ask_all()
            assert not busy.done()
            (tmp_path / "later").touch()
            await busy

    with App("busy.py", tmp_path) as app:
        asyncio.run(asyncio.wait_for(clients(app), TIMEOUT))
