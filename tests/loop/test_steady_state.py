"""A server that has warmed up stops the world no more: not to serve requests, messages, timers and executors.

The interpreter stops all threads of the process for a moment when a function's ``__code__`` is replaced, a class is changed,
and the like.  No engine in which requests run in parallel can afford that once a request.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from interpreters import FREE_THREADED

pytestmark = pytest.mark.skipif(not FREE_THREADED, reason="nothing runs in parallel")

#: The interpreter counts no stops, but each clears the event that tells when all threads have stopped: what has been written
#: there is gone then.
WORLD = """
#include <Python.h>
#include "internal/pycore_interp.h"

enum { NOT_SINCE = 77 };
static PyObject *changed;           /* names of functions whose code has been replaced */

static int
on_change(PyFunction_WatchEvent event, PyFunctionObject *function, PyObject *value)
{
    if (event == PyFunction_EVENT_MODIFY_CODE)
        return PyList_Append(changed, function->func_qualname);
    return 0;
}

static PyObject *
watch(PyObject *self, PyObject *unused)
{
    if (changed == NULL) {
        changed = PyList_New(0);
        if (changed == NULL || PyFunction_AddWatcher(on_change) < 0)
            return NULL;
    }
    PyList_Clear(changed);
    PyInterpreterState_Get()->stoptheworld.stop_event.v = NOT_SINCE;
    Py_RETURN_NONE;
}

static PyObject *
seen(PyObject *self, PyObject *unused)
{
    bool stopped = PyInterpreterState_Get()->stoptheworld.stop_event.v != NOT_SINCE;
    return Py_BuildValue("NN", PyBool_FromLong(stopped), PyList_GetSlice(changed, 0, PyList_GET_SIZE(changed)));
}

static PyMethodDef methods[] = {{"watch", watch, METH_NOARGS}, {"seen", seen, METH_NOARGS}, {0}};
static PyModuleDef_Slot slots[] = {{Py_mod_gil, Py_MOD_GIL_NOT_USED}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "world", .m_methods = methods, .m_slots = slots};
PyMODINIT_FUNC PyInit_world(void) { return PyModuleDef_Init(&module); }
"""

PROGRAM = """
import asyncio, gc, json, sys
import tornado.stm, tornado.web, tornado.websocket, tornado.httpclient
import world

class Page(tornado.web.RequestHandler):
    def initialize(self, found):
        self.found = found

    async def get(self):
        self.found["n"] += 1
        await asyncio.sleep(0.0001)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(60, print)
        number = await loop.run_in_executor(None, abs, -5)
        timer.cancel()
        self.write("%d" % await asyncio.create_task(asyncio.sleep(0, number)))

class Echo(tornado.websocket.WebSocketHandler):
    def on_message(self, message):
        self.write_message(message)

async def ask(port, n, keep_alive):
    reader = writer = None
    for _ in range(n):
        if writer is None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        close = b"" if keep_alive else b"Connection: close\\r\\n"
        writer.write(b"GET / HTTP/1.1\\r\\nHost: test\\r\\n" + close + b"\\r\\n")
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        assert head.startswith(b"HTTP/1.1 200 ") and await reader.readexactly(1) == b"5", head
        if not keep_alive:
            writer.close()
            await writer.wait_closed()
            writer = None
    if writer is not None:
        writer.close()
        await writer.wait_closed()

async def fetch(port, n):
    client = tornado.httpclient.AsyncHTTPClient()
    for _ in range(n):
        assert (await client.fetch("http://127.0.0.1:%d/" % port, connect_timeout=90, request_timeout=90)).body == b"5"

async def talk(port, n):
    connection = await tornado.websocket.websocket_connect("ws://127.0.0.1:%d/echo" % port)
    for i in range(n):
        await connection.write_message(str(i))
        assert await connection.read_message() == str(i)
    connection.close()
    assert await connection.read_message() is None

async def serve(port, n):
    await asyncio.gather(*[ask(port, n, keep_alive) for keep_alive in (True, True, False)], fetch(port, n), talk(port, n))

def replace_code():
    def work():
        pass
    work()
    work.__code__ = work.__code__.replace(co_name="other")

async def main(stop):
    gc.disable()  # collections stop the world, too
    application = tornado.web.Application([("/", Page, {"found": {"n": 0}}), ("/echo", Echo)])
    server = application.listen(0, "127.0.0.1")
    port = [*server._sockets.values()][0].getsockname()[1]
    windows = []
    while len(windows) < (3 if stop else 12) and (not windows or windows[-1] != [False, []]):
        world.watch()
        if stop:
            replace_code()
        else:
            await serve(port, 30)
        windows.append(list(world.seen()))
    print(json.dumps(windows))

tornado.stm.run(main(sys.argv[1] == "stop"), threads=2)
"""

QUEUES = """
import gc, json
from tornado.stm import transaction
import world

gc.disable()
n = [0]

def count():
    n[0] += 1

def generate():
    for _ in range(3):
        count()
        yield

def work():
    for _ in range(100):
        for _ in range(3):
            transaction.add(count)
        transaction.run()
        queue = transaction.TransactionQueue()
        queue.add_generator(generate())
        queue.run()
        with transaction.atomic:
            count()

windows = []
while len(windows) < 12 and (not windows or windows[-1] != [False, []]):
    world.watch()
    work()
    windows.append(list(world.seen()))
print(json.dumps(windows))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the module ``world`` is."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    include = sysconfig.get_path("include")
    if compiler is None or not Path(include, "internal").exists():
        pytest.skip("needs a C compiler and Python's headers")
    folder = tmp_path_factory.mktemp("world")
    (folder / "world.c").write_text(WORLD)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-DPy_BUILD_CORE_MODULE=1", "-I", include, "world.c",
         "-o", "world" + sysconfig.get_config_var("EXT_SUFFIX")],
        cwd=folder, check=True, timeout=60,
    )  # fmt: skip
    return folder


def windows_of(folder, program, *arguments):
    """For each window of the program's work: has the world been stopped, and whose code has been replaced?"""
    (folder / "app.py").write_text(program)
    done = subprocess.run([sys.executable, "app.py", *arguments], cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_requests(folder):
    """Now and then a path is taken for the first time, so some window must be free of stops, not each."""
    windows = windows_of(folder, PROGRAM, "")
    assert windows[-1] == [False, []]


def test_a_stop_is_seen(folder):
    assert all(stopped and "replace_code.<locals>.work" in changed for stopped, changed in windows_of(folder, PROGRAM, "stop"))


def test_queues(folder):
    assert windows_of(folder, QUEUES)[-1] == [False, []]
