"""What is known of the C code of other libraries: the files that come with the engine, and what programs declare."""

import functools
import io
import operator
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from meeting import APART, CONFLICT, Meeting, is_alone, meet
from tornado.stm import activation, core, effects, testing
from tornado.stm.c_functions import libraries
from tornado.stm.core import trusted

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(Path(libraries.__file__).parent.glob("*.effects"))

needs_engine = pytest.mark.skipif(not core.COMPILED, reason="the engine is absent: nothing has effects")
needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")

#: a function of C code that the engine knows nothing about
UNKNOWN = "_sqlite3.complete_statement"
ASK = """
import _sqlite3
from tornado.stm import activation, core, transaction
from tornado.stm.core import trusted
@trusted
def tell():
    core.defer(print, "alone" if core.is_exclusive() else "beside others")
def ask():
    _sqlite3.complete_statement("a")
    tell()
activation.activate()
core.Transaction(ask, ()).run()
"""


def run(*arguments, text=None):
    return subprocess.run([sys.executable, *arguments], input=text, cwd=ROOT, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_line_means_something(file):
    found = libraries.parse(file.read_text(), file.name)
    assert found and all(declaration.releases for declaration in found)
    assert {declaration.name.partition(".")[0] for declaration in found} == {file.stem}


@needs_engine
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_line_of_a_library_that_is_installed_is_about_something_there(file):
    found = libraries.parse(file.read_text(), file.name)
    if not libraries._is_installed(*found[0].releases):
        pytest.skip("another release is installed, or none")
    names = sorted({declaration.name.rpartition(".")[0] for declaration in found if declaration.what == "hidden"})
    modules = sorted({".".join(declaration.name.split(".")[:2]) for declaration in found})
    code = f"""
import contextlib, importlib
import {file.stem}
for name in {modules}:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
from tornado.stm import activation
activation.activate()
from tornado.stm.c_functions import libraries
print([each for each in libraries._waiting if each.name.startswith("{file.stem}.")])
"""
    done = run("-c", code)
    assert (done.stdout, names) == ("[]\n", names), done.stderr


@needs_threads
def test_what_is_not_declared_runs_alone_and_what_is_does_not(tmp_path):
    assert run("-c", ASK).stdout == "alone\n"
    early = f"from tornado.stm import effects\neffects.declare('{UNKNOWN}', 'PURE')\n"
    assert run("-c", early + ASK).stdout == "beside others\n"
    late = ASK.replace("activation.activate()\n", "activation.activate()\n" + early)
    assert run("-c", late).stdout == "beside others\n"
    later = ASK.replace("import _sqlite3\n", early).replace("def ask():\n", "def ask():\n    import _sqlite3\n") + "ask()\n"
    assert run("-c", later).stdout.splitlines()[-1] == "beside others"


SEEN_BEFORE = """
import bz2
from tornado.stm import activation, core, effects
from tornado.stm.core import trusted
@trusted
def is_alone():
    return core.is_exclusive()
def look(decompressor):
    return decompressor.eof, is_alone()
activation.activate()
objects = bz2.BZ2Decompressor(),
print(core.Transaction(look, objects).run())
effects.declare("_bz2.BZ2Decompressor", kind="INERT")
print(core.Transaction(look, objects).run())
"""


@needs_threads
def test_what_is_declared_of_a_type_counts_for_those_who_have_seen_it_before():
    done = run("-c", SEEN_BEFORE)
    assert (done.stdout, done.stderr) == ("(False, True)\n(False, False)\n", "")


IMPORTED_MEANWHILE = """
import sys
from tornado.stm import activation, effects
sys.path.append(sys.argv[1])
activation.activate()
for name in "second.one", "second.two", "second.three", "first.Class.method", "third.complete_statement":
    effects.declare(name, "PURE")
import first
""" + ASK.replace("_sqlite3", "third")


@needs_threads
def test_to_look_for_what_is_declared_may_import_something_that_is_declared_too(tmp_path):
    (tmp_path / "first.py").write_text("""
class Importing(type):
    def __getattr__(cls, name):
        import second
        raise AttributeError(name)
class Class(metaclass=Importing): pass
""")
    (tmp_path / "second.py").write_text("from _sqlite3 import adapt as one, register_adapter as two, register_converter as three")
    (tmp_path / "third.py").write_text("from _sqlite3 import complete_statement")
    done = run("-c", IMPORTED_MEANWHILE, str(tmp_path))
    assert (done.stdout, done.stderr) == ("beside others\n", "")


@needs_threads
def test_a_file_on_the_command_line(tmp_path):
    app, file = tmp_path / "app.py", tmp_path / "more.effects"
    app.write_text(ASK)
    file.write_text(f"# what I have read\ncall {UNKNOWN} PURE  # it only looks at the text\n")
    done = run("-m", "tornado.stm", "--effects", str(file), str(app))
    assert done.stdout == "beside others\n", done.stderr


@needs_threads
def test_declarations_for_another_release_do_not_count(tmp_path):
    app, file = tmp_path / "app.py", tmp_path / "more.effects"
    app.write_text(ASK)
    file.write_text(f"library tornado 1.0 2\ncall {UNKNOWN} PURE\nlibrary tornado 6 7\n")
    done = run("-m", "tornado.stm", "--effects", str(file), str(app))
    assert done.stdout == "alone\n", done.stderr


@pytest.mark.parametrize("text, said", [
    ("call a.b", "more.effects:1: 'call a.b': it should be"),
    ("\ncalls a.b PURE", "more.effects:2:"),
    ("call nodots PURE", "'nodots' is no dotted name"),
    pytest.param("call a.b PURER", "there is no effect 'PURER'", marks=needs_engine),
    pytest.param("type a.b PURE", "there is no kind 'PURE'", marks=needs_engine),
    pytest.param("call a.b TWIN", "there is no effect 'TWIN'", marks=needs_engine),
    ("library x one two", "more.effects:1:"),
    (b"\xff\xfe", "more.effects: not a text file"),
])  # fmt: skip
def test_what_cannot_be_declared_is_refused_in_one_line(tmp_path, text, said):
    file = tmp_path / "more.effects"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError):
        effects.load(file)
    done = run("-m", "tornado.stm", "--effects", str(file), "app.py")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert said in done.stderr


def test_a_file_that_is_not_there_is_refused_in_one_line(tmp_path):
    done = run("-m", "tornado.stm", "--effects", str(tmp_path / "none"), "app.py")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "No such file" in done.stderr


def test_a_module_may_say_that_it_has_another_name(tmp_path):
    (tmp_path / "says_another.py").write_text("__name__ = 'another'\n")
    code = "from tornado.stm import activation; activation.activate(); import sys; sys.path.append(sys.argv[1]); import says_another"
    done = run("-c", code, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_cannot_be_declared():
    with pytest.raises(ValueError):
        effects.declare("a.b")
    with pytest.raises(ValueError):
        effects.declare("nodots", "PURE")


COMPILED_OR_NOT = """
import importlib, sys
import tornado.stm
tornado.stm.install(2)
module = importlib.import_module(sys.argv[1])
print(module.__file__ is not None and module.__file__.endswith(".py"))
"""


@needs_threads
@pytest.mark.parametrize("name", ["sqlalchemy.util._immutabledict_cy", "sqlalchemy.engine._row_cy"])
def test_what_has_a_twin_in_python_and_is_not_declared_runs_in_python(name):
    pytest.importorskip(name)
    done = run("-c", COMPILED_OR_NOT, name)
    assert (done.stdout, done.stderr) == ("True\n", "")


LITESTAR = """
import asyncio
from litestar import Litestar, get
from tornado.stm import core

@get("/{n:int}", media_type="text/plain")
async def ask(n: int) -> str:
    return "alone" if core.is_exclusive() else "beside others"

async def main(app=Litestar([ask], openapi_config=None)):
    scope = dict(type="http", method="GET", path="/1", raw_path=b"/1", root_path="", query_string=b"", headers=[], scheme="http",
                 server=("test", 80), client=("test", 1), http_version="1.1", asgi={"version": "3.0"})
    sent = []
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}
    async def send(message):
        sent.append(message)
    await app(scope, receive, send)
    print(sent[0]["status"], sent[1]["body"].decode())

asyncio.run(main())
"""


@needs_threads
def test_a_handler_of_litestar_does_not_run_alone_after_its_arguments_were_made(tmp_path):
    pytest.importorskip("litestar", reason="litestar is not installed")
    (tmp_path / "app.py").write_text(LITESTAR)
    done = run("-m", "tornado.stm", "-q", "-j", "2", str(tmp_path / "app.py"))
    assert (done.returncode, done.stdout) == (0, "200 beside others\n"), done.stderr


# ---- What is declared of single libraries ------------------------------------------------------------------------------


def imported(library, name):
    """The module of that name, of a release for which there are declarations."""
    module = pytest.importorskip(name)
    if not libraries.covers(library):
        pytest.skip("another release is installed")
    activation.activate()
    return module


def run_beside_others(function, *args):
    """What the function returns as a transaction, which must not run alone."""

    def call():
        return function(*args), is_alone()

    reasons = core.stats()["exclusive_reasons"]
    result, alone = core.Transaction(call, ()).run()
    assert not alone, [reason for reason, n in core.stats()["exclusive_reasons"].items() if n != reasons.get(reason)]
    return result


@trusted
def is_irrevocable():
    return core.keeps_others_waiting()


@pytest.fixture
def zmq_pair():
    zmq = imported("zmq", "zmq")
    with zmq.Context() as context, context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
        pull.bind("inproc://here")
        push.connect("inproc://here")
        pull.rcvtimeo = 10_000
        yield push, pull


@needs_threads
def test_a_socket_of_zmq_is_used_beside_others(zmq_pair):
    push, pull = zmq_pair

    def exchange():
        before = is_irrevocable()
        push.send(b"one")
        push.send_multipart([bytearray(b"two"), memoryview(b"three")])
        return before, (pull.recv(), pull.recv_multipart()), pull.events, push.closed, is_irrevocable()

    assert run_beside_others(exchange) == (False, (b"one", [b"two", b"three"]), 0, False, True)


@needs_threads
def test_a_message_of_zmq_is_sent_once_and_in_the_order_of_commits(zmq_pair):
    push, pull = zmq_pair

    def send(heap, n):
        heap.append(n)
        push.send(b"%d" % n)
        heap.append(-n)

    for seed in range(5):
        run = testing.run_concurrently(list, [(send, n) for n in range(40)], seed=seed, aborts=0.02)
        assert [int(pull.recv()) for _ in range(40)] == run.order
        assert run.heap == [each for n in run.order for each in (n, -n)]
    assert not pull.poll(0)


@needs_threads
def test_whether_a_socket_of_zmq_is_closed_is_asked_at_ones_turn(zmq_pair):
    push, _ = zmq_pair
    shadow = type(push).shadow(push)

    def ask():
        return shadow.closed, is_irrevocable()

    assert run_beside_others(ask) == (False, True)


ZMQ_ASYNCIO = """
import asyncio, sys, zmq, zmq.asyncio
from tornado.stm import core

async def answer(context, url, n):
    with context.socket(zmq.ROUTER) as socket:
        socket.bind(url)
        for _ in range(n):
            *sender, question = await socket.recv_multipart()
            await socket.send_multipart([*sender, b"<%b>" % question])

async def ask(context, url, k, n):
    answers = []
    with context.socket(zmq.DEALER) as socket:
        socket.connect(url)
        for i in range(n):
            await socket.send(b"%d.%d" % (k, i))
            answers.append((await socket.recv()).decode())
            alone.append(core.is_exclusive())
    return answers

async def main():
    with zmq.asyncio.Context() as context:
        url = f"ipc://{sys.argv[1]}"
        answering = asyncio.create_task(answer(context, url, 40))
        answers = await asyncio.gather(*(ask(context, url, k, 10) for k in range(4)))
        await answering
    print(answers == [[f"<{k}.{i}>" for i in range(10)] for k in range(4)], set(alone))

alone = []
asyncio.run(main())
"""


@needs_threads
def test_sockets_of_zmq_asyncio(tmp_path):
    imported("zmq", "zmq")
    (tmp_path / "app.py").write_text(ZMQ_ASYNCIO)
    done = run("-m", "tornado.stm", "-q", "-j", "2", str(tmp_path / "app.py"), str(tmp_path / "socket"))
    assert (done.returncode, done.stdout) == (0, "True {False}\n"), done.stderr


@pytest.fixture
def pil():
    """The module PIL.Image, which has loaded all that reads and writes files."""
    image = imported("PIL", "PIL.Image")
    for name in "ImageDraw", "ImageFilter", "ImageFont":
        pytest.importorskip(f"PIL.{name}")
    image.init()
    return image


def picture(pil):
    return pil.linear_gradient("L").resize((16, 16)).convert("RGB")


def warmed_up(*functions):
    """They may have to run alone where C code calls them for the first time."""
    for function in functions:
        core.Transaction(function, ()).run()


@needs_threads
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
def test_an_image_is_read_made_smaller_and_written_beside_others(pil, kind):
    file = io.BytesIO()
    picture(pil).save(file, kind)

    def thumbnail():
        image = pil.open(io.BytesIO(file.getvalue())).convert("RGB")
        image.thumbnail((8, 8))
        smaller = io.BytesIO()
        image.save(smaller, kind)
        return smaller.getvalue()

    warmed_up(thumbnail)
    assert run_beside_others(thumbnail) == thumbnail()


@needs_threads
def test_an_image_of_ones_own_is_changed_and_drawn_into_beside_others(pil):
    from PIL import ImageDraw, ImageFilter, ImageFont

    font, shared = ImageFont.load_default(12), picture(pil)

    def make():
        image = pil.new("RGB", (40, 30), "white")
        draw = ImageDraw.Draw(image)
        draw.line([[0, 0], [20, 20]], fill="red")
        draw.rectangle((1, 2, 9, 9), outline=(1, 2, 3))
        draw.text((2, 10), "text", font=font, fill="blue")
        image.paste(shared, (3, 3), shared.convert("L"))
        image.load()[0, 0] = 7, 8, 9
        image.putpixel((1, 0), image.getpixel((0, 0)))
        image = pil.merge("RGB", image.filter(ImageFilter.GaussianBlur(1)).rotate(90).split())
        return image.quantize(16).convert("RGB").tobytes(), image.histogram(), image.getbbox(), draw.textbbox((0, 0), "text", font=font)

    warmed_up(make)
    assert run_beside_others(make) == make()
    assert meet(lambda: (), make, make) == APART


@needs_threads
def test_looks_at_an_image_keep_nobody_out(pil):
    assert meet(lambda: (picture(pil),), lambda image: image.resize((5, 5)).tobytes(), lambda image: image.getpixel((0, 0))) == APART


def put_by_access(image):
    image.load()[0, 0] = 1, 2, 3


def draw_line(image):
    from PIL import ImageDraw

    ImageDraw.Draw(image).line([(0, 0), (3, 3)], fill="red")


@needs_threads
@pytest.mark.parametrize("change", [
    lambda image: image.putpixel((0, 0), (1, 2, 3)), lambda image: image.paste((1, 2, 3), (0, 0, 4, 4)), put_by_access, draw_line,
    lambda image: image.frombytes(bytes(16 * 16 * 3)), lambda image: image.putalpha(3),
], ids=["putpixel", "paste", "access", "draw", "frombytes", "putalpha"])  # fmt: skip
def test_changes_of_an_image_keep_out_who_looks_at_it(pil, change):
    warmed_up(lambda: change(picture(pil)))
    assert Meeting(lambda: (picture(pil),), lambda image: image.getpixel((0, 0)), change).run() == CONFLICT


@needs_threads
def test_the_colours_of_an_image_are_found_by_one_at_a_time(pil):
    """Its palette remembers which of them is next to another one."""
    palette = pil.new("P", (1, 1))
    palette.putpalette([i % 256 for i in range(768)])
    image = picture(pil)

    def find():
        return image.quantize(palette=palette).tobytes(), is_irrevocable()

    warmed_up(find)
    assert run_beside_others(find) == (image.quantize(palette=palette).tobytes(), True)


@needs_threads
def test_changes_of_images_are_serializable(pil):
    from PIL import ImageDraw

    def stamp(heap, n):
        heap["n"] += 1
        heap["canvas"].paste(heap["logo"].resize((4, 4)), (n, n))
        return heap["canvas"].getpixel((n, n)), heap["n"]

    def draw(heap, n):
        ImageDraw.Draw(heap["canvas"]).line([(0, n), (15, 15 - n)], fill=(n, 3, 5))
        heap["n"] += 1

    def turn(heap, n):
        heap["canvas"] = image = heap["canvas"].rotate(90)
        image.putpixel((n, 0), (9, n, 9))
        return image.tobytes()

    def load(heap, n):
        return heap["file"].resize((n, n)).tobytes(), heap["n"]

    file = io.BytesIO()
    picture(pil).save(file, "PNG")

    def make():
        return {"canvas": pil.new("RGB", (16, 16)), "logo": picture(pil), "n": 0, "file": pil.open(io.BytesIO(file.getvalue()))}

    def observe(heap):
        return {name: value.tobytes() if isinstance(value, pil.Image) else value for name, value in heap.items()}

    calls = [(function, n) for n in range(1, 7) for function in (stamp, draw, turn, load)]
    testing.check_serializable(make, calls, runs=10, seed=1, aborts=0.004, observe=observe)


IMAGE_OF_A_BUFFER = """
import sys
from PIL import Image
from tornado.stm import activation, core
from tornado.stm.core import trusted
activation.activate()

@trusted
def is_alone():
    return core.is_exclusive()

def look(image):
    return image.getpixel((0, 0)), is_alone()

def use_own():
    image = Image.new("L", (2, 2), 5)
    image.putpixel((1, 1), 6)
    return look(image)

image = Image.new("L", (2, 2), 7)
buffer = eval(sys.argv[1])
view = Image.frombuffer("L", (2, 2), buffer, "raw", "L", 0, 1)
print(*(core.Transaction(look, (each,)).run() for each in (image, view)), core.Transaction(use_own, ()).run())
"""


@needs_threads
@pytest.mark.parametrize("buffer, alone", [("bytes(4)", False), ("bytearray(4)", True), ("memoryview(bytearray(4)).toreadonly()", True)])
def test_an_image_in_memory_that_others_may_write_to_ends_the_sharing_of_images(pil, buffer, alone):
    done = run("-c", IMAGE_OF_A_BUFFER, buffer)
    assert (done.stderr, done.stdout) == ("", f"(7, {alone}) (0, {alone}) (5, False)\n")


@pytest.fixture
def np():
    return imported("numpy", "numpy")


def reading(np, shared):
    """What handlers compute from arrays that they share."""
    total = (shared + 1) * [[1.0, 2.0, 3.0]] @ np.ones((3, 2)) - shared.mean()
    chosen = shared[shared > 1], shared[1:, [0, 2]], np.where(shared > 1, shared, 0), np.sort(shared)[0]
    return (
        total.tolist(), [each.tolist() for each in chosen], shared.sum(axis=0).tolist(), float(np.median(shared)), np.linalg.norm(shared).item(),
        np.concatenate([shared, shared]).shape, np.percentile(shared, 30).item(), np.exp(shared).max().item(), shared.dtype.name, shared[0, 0] + 1,
    )  # fmt: skip


def making(np, shared):
    """What they do to arrays of their own."""
    made = np.zeros((2, 3))
    made[0] = shared[0]
    made += shared
    np.sqrt(made, out=made)
    row = made[1]
    row *= 2
    copy = shared - 1
    copy[copy < 1] = 7
    copy.sort(axis=1)
    np.add(copy, made, copy)
    with np.errstate(divide="ignore"):
        copy /= np.arange(3)
    return made.tolist(), copy.tolist(), np.random.default_rng(3).integers(100)


@needs_threads
@pytest.mark.parametrize("use", [reading, making])
def test_arrays_are_computed_with_beside_others(np, use):
    shared = np.arange(6.0).reshape(2, 3)
    warmed_up(lambda: use(np, shared))
    assert run_beside_others(use, np, shared) == use(np, shared)
    assert meet(lambda: (np, shared), use, use) == APART


def changes_of_arrays(np):
    """Functions that change an array that others have, by all the ways that do."""
    shared, only_in_a_tuple, only_in_a_method = np.arange(4.0), (np.ones(4), 1, np.ones(4)), [np.arange(4.0).sort]

    def put():
        shared[0] = 1

    def put_into_a_view():
        view = shared[1:]
        view[0] = 1

    def add():
        array = shared
        array += 1

    return {
        "item": put, "view": put_into_a_view, "in place": add, "setitem": lambda: operator.setitem(shared, 0, 1),
        "iadd": lambda: operator.iadd(shared, 1), "out": lambda: np.add(1, 1, out=shared), "outs": lambda: np.add(1, 1, out=(shared,)),
        "position": lambda: np.add(1, 1, shared), "method": lambda: shared.cumsum(0, None, shared), "fill": lambda: shared.fill(1),
        "reshaped": lambda: shared.reshape(2, 2).T.sort(), "bound": lambda: only_in_a_method[0](), "spread": lambda: np.add(*only_in_a_tuple),
        "partial": functools.partial(np.add, 1, 1, np.ones(4)), "reduced": lambda: np.add.reduce(np.ones((2, 4)), 0, None, shared),
        "mean": lambda: np.mean(np.ones((2, 4)), axis=0, out=shared), "joined": lambda: np.concatenate([[1, 2], [3, 4]], 0, shared),
        "copied": lambda: np.copyto(shared, 1), "copied by name": lambda: np.copyto(dst=shared, src=1), "at": lambda: np.add.at(shared, 0, 1),
        "memory": lambda: operator.setitem(memoryview(shared), 0, 1.0), "packed": lambda: struct.pack_into("d", shared, 0, 1.0),
        "read": lambda: io.BytesIO(bytes(32)).readinto(shared), "random": lambda: np.random.default_rng(1).random(4, float, shared),
        "called back": lambda: np.frompyfunc([].append, 1, 1)(shared), "objects": lambda: np.array([[], {}], dtype=object)[0],
    }  # fmt: skip


@needs_threads
def test_who_changes_an_array_that_others_have_runs_alone(np):
    def is_alone_after(change):
        change()
        return is_alone()

    found = {name: core.Transaction(is_alone_after, (change,)).run() for name, change in changes_of_arrays(np).items()}
    assert set(found.values()) == {True}, found


@needs_threads
@pytest.mark.parametrize("use", [
    lambda np, rows: np.ones((2, 2)) + rows, lambda np, rows: np.add(1, rows), lambda np, rows: np.array(rows), lambda np, rows: np.sum(rows),
    lambda np, rows: np.ones((2, 2)) == rows, lambda np, rows: operator.setitem(np.ones((2, 2)), slice(None), rows),
    lambda np, rows: operator.add(np.ones((2, 2)), rows), lambda np, rows: np.ones((9, 9))[rows],
])  # fmt: skip
def test_lists_that_are_computed_with_are_read_to_the_bottom(np, use):
    def make():
        return np, [[1, 2], [3, 4]]

    for _ in range(2):
        core.Transaction(use, make()).run()
    assert Meeting(make, use, lambda np, rows: rows[0].reverse()).run() == CONFLICT


@needs_threads
def test_an_array_in_a_buffer_is_locked_as_that(np):
    def make():
        buffer = bytearray(16)
        return buffer, np.frombuffer(buffer, np.uint8)[3:]

    def change(buffer, array):
        buffer[5] = 1

    def change_array(buffer, array):
        array[2] = 1

    assert meet(make, lambda buffer, array: array.sum(), change) == CONFLICT
    assert meet(make, lambda buffer, array: buffer[5], change_array) == CONFLICT


@needs_threads
def test_random_numbers_are_drawn_by_one_at_a_time_or_from_ones_own(np):
    shared = np.random.default_rng(1)

    def draw():
        own = np.random.default_rng(2)
        return own.integers(100), own.random(3).tolist(), is_irrevocable(), shared.integers(100), is_irrevocable()

    warmed_up(draw)
    again, own = np.random.default_rng(1), np.random.default_rng(2)
    again.integers(100)
    assert run_beside_others(draw) == (own.integers(100), own.random(3).tolist(), False, again.integers(100), True)


@needs_threads
def test_what_is_called_on_errors_has_barriers(np):
    seen = {}

    def divide():
        with np.errstate(divide="call", call=functools.partial(operator.setitem, seen)):
            return (np.ones(2) / np.zeros(2)).tolist()

    assert core.Transaction(divide, ()).run() == [np.inf] * 2 and list(seen) == ["divide by zero"]
    assert meet(lambda: (), divide, lambda: seen.get("divide by zero")) == CONFLICT


@needs_threads
def test_changes_of_arrays_are_serializable(np):
    def make():
        array, buffer = np.arange(12.0).reshape(3, 4).copy(), bytearray(range(16))
        return {
            "array": array, "view": array[1:], "n": 0, "rows": [[float(n)] * 4 for n in range(3)], "buffer": buffer,
            "bytes": np.frombuffer(buffer, np.uint8), "random": np.random.default_rng(5),
        }  # fmt: skip

    def look(heap, n):
        return heap["array"].sum().item(), heap["view"][0].tolist(), (heap["array"] + heap["rows"]).mean().item(), heap["n"]

    def change(heap, n):
        heap["n"] += 1
        heap["array"][n % 3, n % 4] = n
        heap["view"] += 1

    def replace(heap, n):
        heap["n"] += 1
        new = heap["array"] * n
        new[new > 20] = 3
        new -= new.mean(axis=0)
        heap["array"], heap["view"] = new, new[1:]

    def change_rows(heap, n):
        heap["rows"][n % 3][n % 4] = n
        return np.array(heap["rows"]).tolist()

    def change_buffer(heap, n):
        heap["buffer"][n] = n * 3
        return heap["bytes"].tolist()

    def draw(heap, n):
        heap["n"] += 1
        return heap["random"].integers(100), heap["n"]

    def observe(heap):
        return {name: value.tolist() if isinstance(value, np.ndarray) else str(value) for name, value in heap.items() if name != "random"}

    functions = look, change, replace, change_rows, change_buffer, draw
    calls = [(function, n) for n in range(1, 7) for function in functions]
    testing.check_serializable(make, calls, runs=10, seed=1, aborts=0.01, observe=observe)
