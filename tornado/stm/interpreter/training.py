"""What a profile-guided engine is trained by: a server whose pages are what servers do, and its clients.

    python training.py FOLDER THREADS      serve FOLDER's `tornado.stm` to clients, on that many threads, and end
    python training.py PORT                be the clients

The more kinds of instructions and C functions a page uses, the better: what no page does counts as cold.  So the pages
run parts of the standard library that are written in Python, besides what Tornado does for each request.
"""

import asyncio
import collections
import contextlib
import dataclasses
import difflib
import enum
import fractions
import functools
import html.parser
import json
import re
import sys
import textwrap
import tokenize

#: page -> how many clients ask for it at a time, each on one connection, one request after the other
PAGES = {"/": 16, "/alone": 1, "/json": 4, "/template": 4, "/objects": 4, "/generators": 4, "/library": 4, "/shared": 4, "/thread": 2}
SECONDS = 1  # for each page

TEMPLATE = """<html><body><h1>{{ title }}</h1>{% for item in items %}{% if item.price > 20 %}<li class="{{ item.kind.name }}">
{{ item.name }}: {{ '%.2f' % item.price }} {{ ', '.join(sorted(item.tags)) }}</li>{% else %}<li>{{ item.name.upper() }}</li>
{% end %}{% end %}</body></html>"""

SOURCE = '''class A(dict):
    """One."""
    def f(self, *args, key=None, **more):
        return {k: v for k, v in self.items() if v is not key} or [x + 1 for x in args]
'''


class Kind(enum.Enum):
    BOOK = 1
    FILM = 2
    GAME = 3


@dataclasses.dataclass(order=True)
class Item:
    price: float
    name: str
    kind: Kind
    tags: set
    sold: int = 0

    @property
    def label(self):
        return f"{self.name}:{self.price:.1f}"


class Slots:
    __slots__ = ("left", "right", "value")

    def __init__(self, value):
        self.left = self.right = None
        self.value = value

    def insert(self, value):
        node = self
        while node is not None:
            side = "left" if value < node.value else "right"
            previous, node = node, getattr(node, side)
        setattr(previous, side, Slots(value))

    def __iter__(self):
        if self.left is not None:
            yield from self.left
        yield self.value
        if self.right is not None:
            yield from self.right


class Texts(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_data(self, data):
        self.found.append(data)


ITEMS = [Item(i * 7 % 101, f"item {i}", list(Kind)[i % 3], {"ab"[i % 2], "cde"[i % 3]}) for i in range(300)]
COUNTS = collections.Counter()
RECENT = collections.deque(maxlen=50)
CACHE = {}


def objects():
    """Filter, group and sort objects that all requests share."""
    found = sorted((x for x in ITEMS if x.price > 30 and "c" in x.tags), key=lambda x: (x.kind.value, -x.price, x.name))
    groups = collections.defaultdict(list)
    for x in found:
        groups[x.kind].append(x.label)
    return {kind.name: labels[:5] for kind, labels in groups.items()}


def generators():
    """Sieve, walk over a tree of its own, and catch what is raised on the way."""
    primes = []
    for k in range(2, 300):
        if all(k % p for p in primes if p * p <= k):
            primes.append(k)
    tree = Slots(150)
    for k in primes:
        tree.insert(k * 31 % 300)
    total = 0
    for k in tree:
        with contextlib.suppress(KeyError):
            total += {150: 1, 31: 2}[k]
        try:
            total += fractions.Fraction(k, k % 7).numerator if k % 5 else 0
        except ZeroDivisionError:
            total -= 1
        finally:
            total ^= 1
    match (total, primes):
        case (int(), [first, second, *_]):
            return total + first + second
        case _:
            return None


def library():
    """Use modules of the standard library that are written in Python."""
    parser = Texts()
    parser.feed("<p>some <b>bold &amp; plain</b> words, <i x='1'>once</i> more</p>" * 3)
    lines = textwrap.wrap(" ".join(parser.found), 30)
    names = [t.string for t in tokenize.generate_tokens(iter(SOURCE.splitlines(True)).__next__) if t.type == tokenize.NAME]
    ratio = difflib.SequenceMatcher(None, lines[0], lines[-1]).ratio()
    words = re.sub(r"(\w+) (\w+)", lambda m: f"{m[2]} {m[1]}", " ".join(names)).split()
    pure = json.JSONEncoder(indent=1, sort_keys=True)
    return pure.encode({"lines": lines, "ratio": ratio, "words": words[:20], "nested": [None, True, {"a": 1.5}]})


@functools.lru_cache
def squares(n):
    return sum(map(int.__mul__, range(n), range(n)))


def shared(argument):
    """Change what other requests change, too."""
    COUNTS["requests"] += 1
    RECENT.append(argument)
    entry = CACHE.setdefault(argument % 97, [])
    entry.append(argument)
    del entry[:-5]
    if argument % 11 == 0:
        CACHE.pop(argument % 89, None)
    ITEMS[argument % 300].sold += 1
    return [COUNTS["requests"], len(RECENT), squares(argument % 30), *entry]


def make_application():
    from tornado import gen, template, web

    page = template.Template(TEMPLATE)

    class Hello(web.RequestHandler):
        def get(self):
            self.write("Hello, world")

    class Json(web.RequestHandler):
        def get(self):
            self.set_header("X-Page", self.request.path)
            self.write({"argument": self.get_argument("n"), "rows": [{"id": k, "text": "x" * 20} for k in range(20)]})

    class Template(web.RequestHandler):
        async def get(self):
            await gen.sleep(0)
            self.write(page.generate(title="Items", items=ITEMS[:40]))

    class Result(web.RequestHandler):
        def initialize(self, function):
            self.function = function

        async def get(self):
            for _ in range(3):
                result = self.function()
            await asyncio.sleep(0)
            self.write(json.dumps(result))

    class Thread(web.RequestHandler):
        async def get(self):
            self.write(await asyncio.get_running_loop().run_in_executor(None, library))

    class Shared(web.RequestHandler):
        def get(self):
            self.write(json.dumps(shared(int(self.get_argument("n")))))

    return web.Application([
        ("/(?:alone)?", Hello), ("/json", Json), ("/template", Template), ("/shared", Shared), ("/thread", Thread),
        *[(f"/{function.__name__}", Result, {"function": function}) for function in (objects, generators, library)],
    ])


async def ask(port, path, end):
    """Ask for one page again and again, on one connection."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    n = 0
    while loop.time() < end:
        n += 1
        writer.write(f"GET {path}?n={n} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head:
            raise SystemExit(f"{path}: {head!r}")
        await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))
    writer.close()
    return n


async def be_clients(port):
    for path, clients in PAGES.items():
        end = asyncio.get_running_loop().time() + SECONDS
        done = await asyncio.gather(*(ask(port, path, end) for _ in range(clients)))
        if not all(done):
            raise SystemExit(f"{path}: a client got no answer in time")


async def serve():
    from tornado import httpserver, netutil

    sockets = netutil.bind_sockets(0, "127.0.0.1")
    server = httpserver.HTTPServer(make_application())
    server.add_sockets(sockets)
    clients = await asyncio.create_subprocess_exec(sys.executable, __file__, str(sockets[0].getsockname()[1]))
    status = await clients.wait()
    server.stop()
    return status


def main(arguments):
    if len(arguments) == 1:
        return asyncio.run(be_clients(int(arguments[0])))
    folder, threads = arguments
    import tornado

    tornado.__path__.insert(0, folder)
    import tornado.stm

    return tornado.stm.run(serve(), threads=int(threads))


if __name__ == "__main__":
    del sys.path[0]  # this file's folder is the build's, and its names are not meant to be imported here
    sys.exit(main(sys.argv[1:]))
