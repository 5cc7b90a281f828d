"""Programs and servers that ask for uvloop get the transactional loop, and are told so."""

import importlib.util
import subprocess
import sys

import pytest

from interpreters import ROOT
from tornado.stm.program import uvloops

#: prints whether the loop that runs is the one that asyncio.run() makes after install()
MAIN = """
import asyncio
async def main():
    loop = asyncio.get_running_loop()
    print(type(loop).__module__.startswith("tornado.stm"), loop.time() > 0)
"""


@pytest.fixture
def folder(tmp_path):
    """One with something that is called uvloop, which is not to be imported."""
    package = tmp_path / "uvloop"
    package.mkdir()
    (package / "__init__.py").write_text("print('the real one')\n")
    about = tmp_path / "uvloop-9.8.7.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: uvloop\nVersion: 9.8.7\n")
    return tmp_path


def run(folder, text, *arguments):
    app = folder / "app.py"
    app.write_text(text)
    return subprocess.run(
        [sys.executable, *(arguments or ("-m", "tornado.stm", "-j", "2")), str(app)], cwd=ROOT, capture_output=True, text=True,
        timeout=100,
    )  # fmt: skip


def lines_told(done):
    return done.stderr.splitlines().count(uvloops.TOLD)


@pytest.mark.parametrize("way", [
    "import uvloop\nuvloop.run(main())",
    "import uvloop\nuvloop.install()\nasyncio.run(main())",
    "import uvloop\nwith asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner: runner.run(main())",
    "import uvloop\nloop = uvloop.Loop()\nassert isinstance(loop, uvloop.Loop)\nloop.run_until_complete(main())\nloop.close()",
    "from uvloop import EventLoopPolicy\nloop = EventLoopPolicy().new_event_loop()\nloop.run_until_complete(main())\nloop.close()",
    "import uvloop\nassert uvloop.__version__ == '9.8.7'\nuvloop.run(main(), debug=True)\nuvloop.run(main())",
])  # fmt: skip
def test_its_loops_are_ours(folder, way):
    done = run(folder, MAIN + way)
    assert done.returncode == 0 and set(done.stdout.splitlines()) == {"True True"}, done.stderr
    assert lines_told(done) == 1


#: prints of both ends of a connection, to a socket that the program has made, whether they send at once
PREBOUND = """
import asyncio, socket, uvloop

async def main():
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    accepted = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda reader, writer: accepted.set_result(writer), sock=listening)
    client = socket.socket()
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, listening.getsockname())
    _, writer = await asyncio.open_connection(sock=client)
    for end in writer, await accepted:
        print(end.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        end.close()

uvloop.run(main())
"""


def test_sockets_of_any_protocol_number_send_at_once(folder):
    done = run(folder, PREBOUND)
    assert done.stdout == "1\n1\n", done.stderr


def test_nothing_is_said_where_its_loops_are_not_used(folder):
    done = run(folder, MAIN + "import uvloop\nasyncio.run(main())")
    assert (done.stdout, lines_told(done)) == ("True True\n", 0), done.stderr


@pytest.mark.skipif(importlib.util.find_spec("uvicorn") is None, reason="uvicorn is not installed")
def test_a_server_that_prefers_it(folder):
    text = "import uvicorn\nfactory = uvicorn.Config(None, loop='auto').get_loop_factory()\n"
    done = run(folder, MAIN + text + "with asyncio.Runner(loop_factory=factory) as runner: runner.run(main())")
    assert (done.stdout, lines_told(done)) == ("True True\n", 1), done.stderr


def test_one_that_has_been_imported_already_is_told_of(folder):
    done = run(folder, MAIN + "import uvloop, tornado.stm\ntornado.stm.install(2)\nasyncio.run(main())", "-u")
    assert (done.stdout, done.stderr) == ("the real one\nTrue True\n", uvloops.TOO_LATE + "\n")


def test_where_it_is_not_installed_it_cannot_be_imported(tmp_path):
    if importlib.util.find_spec("uvloop") is not None:
        pytest.skip("uvloop is installed")
    done = run(tmp_path, "try:\n    import uvloop\nexcept ModuleNotFoundError as e:\n    print(e)\n")
    assert done.stdout == "No module named 'uvloop'\n", done.stderr
