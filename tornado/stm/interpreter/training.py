"""The programs that a profile-guided engine is compiled for: from their runs the compiler learns which way its branches go (`build.py`).

Not those of `stm_bench`: what is measured there shall be what other programs get, too.

    training.py ENGINE THREADS      serve on that engine, to a client that is another process on asyncio's own loop
    training.py client PORT PORT    be that client, of the web server and of the other one
"""

import asyncio
import contextvars
import importlib.util
import json
import pathlib
import re
import sys
from collections import Counter, defaultdict, namedtuple

import tornado.httpserver
import tornado.template
import tornado.web
import tornado.websocket

HOST = "127.0.0.1"
CLIENTS = 8
ROUNDS = 60  # of all pages, by each client
ECHOES = 40  # times that on a web socket, and on a plain one

ROOT = pathlib.Path(__file__).resolve().parents[3]

# ---- What handlers compute ------------------------------------------------------------------------------------------------

Line = namedtuple("Line", "product pieces price")
TEXT = "A loop that runs transactions on all cores, and seems to run them one after the other. " * 8
WORD = re.compile(r"[a-z]+", re.IGNORECASE)
request_number = contextvars.ContextVar("request_number", default=0)


class Account:
    """Something with attributes, properties and methods."""

    def __init__(self, owner, balance):
        self.owner, self.balance, self.history = owner, balance, []

    def __lt__(self, other):
        return self.balance < other.balance

    @property
    def label(self):
        return f"{self.owner}: {self.balance:.2f}"

    def transfer(self, other, amount):
        if amount <= 0:
            raise ValueError("nothing to transfer")
        self.balance -= amount
        other.balance += amount
        for account, sign in ((self, -1), (other, 1)):
            account.history.append(sign * amount)


class Savings(Account):
    __slots__ = ("rate",)

    def __init__(self, owner, balance, rate=0.01):
        super().__init__(owner, balance)
        self.rate = rate

    def interest(self, years=1, *, compound=True):
        return self.balance * ((1 + self.rate) ** years - 1) if compound else self.balance * self.rate * years


def bank(size):
    accounts = [Savings(f"owner {n}", n * 7 % 31, rate=n / 1000) if n % 3 else Account(f"owner {n}", n * 5 % 17) for n in range(size)]
    failed = 0
    for source, target in zip(accounts, accounts[1:]):
        try:
            source.transfer(target, source.balance % 5)
        except ValueError:
            failed += 1
    rich = sorted(account for account in accounts if account.balance > 3)
    total = sum(account.interest(years=2) for account in rich if isinstance(account, Savings))
    return [account.label for account in rich[:5]], round(total, 6), failed, max(accounts, key=lambda account: len(account.history)).owner


def invoice(size):
    lines = [Line(f"product {n % 11}", n % 4 + 1, 1.5 * n) for n in range(size)]
    by_product = defaultdict(list)
    for line in lines:
        by_product[line.product].append(line.pieces * line.price)
    sums = {product: sum(prices) for product, prices in by_product.items()}
    first, *others = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    return {"first": first, "others": dict(others), "pieces": sum(line.pieces for line in lines)}


def words(times):
    counted = Counter(word.lower() for _ in range(times) for word in WORD.findall(TEXT))
    joined = ", ".join("%s: %d" % pair for pair in counted.most_common(5))
    return joined.upper().split(", "), {len(word) for word in counted}, TEXT.replace("loop", "server").partition(",")[0].strip()


def grid(size):
    rows = [[(x * y) % 7 for x in range(size)] for y in range(size)]
    for y in range(1, size - 1):
        for x in range(1, size - 1):
            if rows[y][x] > rows[y - 1][x] and not rows[y][x + 1] & 1:
                rows[y][x] += rows[y + 1][x] - 1
    path, at = [], (0, 0)
    while at[0] < size - 1 or at[1] < size - 1:
        x, y = at
        at = (x + 1, y) if y == size - 1 or (x < size - 1 and rows[y][x + 1] <= rows[y + 1][x]) else (x, y + 1)
        path.append(at)
    return sum(map(sum, rows)), len(path)


def collatz(limit):
    longest = 0
    for start in range(1, limit):
        n, steps = start, 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        longest = max(longest, steps)
    return longest


def pairs(items):
    before = None
    for item in items:
        if before is not None:
            yield before, item
        before = item


def nested(depth):
    if depth == 0:
        return {"leaf": [1, 2.5, None, True, "text"]}
    return {"name": f"node {depth}", "children": [nested(depth - 1), nested(depth - 1)]}


def leaves(tree):
    if "leaf" in tree:
        yield from tree["leaf"]
    else:
        for child in tree.get("children", ()):
            yield from leaves(child)


def tree(depth):
    copy = json.loads(json.dumps(nested(depth)))
    return sum(1 for _ in leaves(copy)), [b for a, b in pairs(leaves(copy)) if a is None][:3]


COMPUTED = {
    "bank": (bank, 150), "invoice": (invoice, 200), "words": (words, 2), "grid": (grid, 20), "collatz": (collatz, 60), "tree": (tree, 4),
}  # fmt: skip

# ---- The web server -------------------------------------------------------------------------------------------------------

PAGE = tornado.template.Template("""<html><body><h1>{{ title }}</h1>{% for owner, balance in rows %}
{% if balance %}<p class="{{ "odd" if balance % 2 else "even" }}">{{ owner }}: {{ "%.2f" % balance }}</p>
{% else %}<p>{{ escape(owner) }} has nothing</p>{% end %}{% end %}{% raw "<hr>" %}</body></html>""")
ROWS = [(f"<owner {n}>", n % 4) for n in range(40)]
visits = defaultdict(int)
log = []


class Greet(tornado.web.RequestHandler):
    def get(self):
        self.write("Good morning")


class Compute(tornado.web.RequestHandler):
    def get(self, name):
        compute, size = COMPUTED[name]
        self.write(repr(compute(size)))


class Show(tornado.web.RequestHandler):
    async def get(self):
        await asyncio.sleep(0)
        self.set_header("X-Rows", len(ROWS))
        self.finish(PAGE.generate(title="Accounts", rows=ROWS))


class Visit(tornado.web.RequestHandler):
    """All requests write to the same objects."""

    def prepare(self):
        self.name = self.get_query_argument("name", "somebody")

    async def get(self):
        visits[self.name] += 1
        log.append(self.name)
        await asyncio.gather(self.count(), self.count())
        self.write({"visits": visits[self.name], "tree": nested(2)})

    async def count(self):
        await asyncio.sleep(0)
        visits[None] += 1
        del log[:-50]


class Post(tornado.web.RequestHandler):
    def post(self):
        if not self.get_body_argument("title", ""):
            raise tornado.web.HTTPError(400)
        self.set_cookie("posted", "1")
        self.redirect("/greet")


class Converse(tornado.websocket.WebSocketHandler):
    def on_message(self, message):
        self.write_message(message[::-1])


PAGES = ["/greet"] * 4 + ["/show", "/visit?name=a", "/visit", "/missing", "/static/training.py", "/post"]
PAGES += [f"/compute/{name}" for name in COMPUTED]


def application():
    return tornado.web.Application([
        (r"/greet", Greet),
        (r"/compute/([a-z]+)", Compute),
        (r"/show", Show),
        (r"/visit", Visit),
        (r"/post", Post),
        (r"/converse", Converse),
        (r"/static/(.*)", tornado.web.StaticFileHandler, {"path": pathlib.Path(__file__).parent}),
    ], log_function=lambda handler: None)  # fmt: skip


# ---- Another server, as other frameworks are made: a protocol, a task for each connection or request ----------------------


class Lines(asyncio.Protocol):
    """Lines that begin with ``+`` are answered at once, others by a task, in their order, both with their number."""

    def __init__(self):
        self.buffer, self.number, self.waiting, self.task = b"", 0, asyncio.Queue(), None

    def connection_made(self, transport):
        self.transport = transport
        self.task = asyncio.get_running_loop().create_task(self.answer_all())

    def data_received(self, data):
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            self.number += 1
            if line.startswith(b"+"):
                self.transport.write(b"%d\n" % self.number)
            else:
                self.waiting.put_nowait((self.number, line.decode()))

    def connection_lost(self, exception):
        self.task.cancel()

    async def answer_all(self):
        while True:
            number, line = await self.waiting.get()
            token = request_number.set(number)
            try:
                self.transport.write(await asyncio.wait_for(self.answer(line), 60))
            finally:
                request_number.reset(token)

    async def answer(self, line):
        async with Turn() as turn:
            headers = dict(part.partition("=")[::2] for part in line.split(";"))
            assert turn.number == request_number.get() and headers
            return f"{turn.number}\n".encode()


class Turn:
    async def __aenter__(self):
        self.number = request_number.get()
        return self

    async def __aexit__(self, *exception):
        return False


async def answer_stream(reader, writer):
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()


# ---- The client -----------------------------------------------------------------------------------------------------------


async def ask(reader, writer, path):
    body = b"title=some+title&text=" + b"x" * 100 if path == "/post" else b""
    request = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}\r\n"
    request += "Content-Type: application/x-www-form-urlencoded\r\nAccept: text/html\r\nUser-Agent: training\r\n\r\n"
    writer.write(request.encode() + body)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
    await reader.readexactly(int(re.search(r"(?i)content-length: *(\d+)", head)[1]))
    status = int(head.split(" ", 2)[1])
    assert status == {"/missing": 404, "/post": 302}.get(path, 200), (path, head)


async def ask_all(port, client):
    for turn in range(ROUNDS):
        if turn % 10 == 0:  # a new connection
            reader, writer = await asyncio.open_connection(HOST, port)
        for at in range(len(PAGES)):
            await ask(reader, writer, PAGES[(at + client) % len(PAGES)])
        if turn % 10 == 9:
            writer.close()


async def converse(port):
    socket = await tornado.websocket.websocket_connect(f"ws://{HOST}:{port}/converse")
    for turn in range(ROUNDS * ECHOES):
        await socket.write_message(f"message {turn}")
        assert await socket.read_message() == f"message {turn}"[::-1]
    socket.close()


async def send_lines(port, stream):
    reader, writer = await asyncio.open_connection(HOST, port)
    for turn in range(ROUNDS * ECHOES):
        writer.write((b"" if turn % 2 or stream else b"+") + b"name=value;other=1\n")
        assert await reader.readline() == (b"NAME=VALUE;OTHER=1\n" if stream else b"%d\n" % (turn + 1))
    writer.close()


async def be_client(port, lines, stream):
    clients = range(CLIENTS)
    await asyncio.gather(*(ask_all(port, client) for client in clients))
    await asyncio.gather(*(converse(port) for _ in clients))
    await asyncio.gather(*(send_lines(lines, False) for _ in clients), *(send_lines(stream, True) for _ in range(2)))


# ---- A run ----------------------------------------------------------------------------------------------------------------


def load_engine(path):
    """Have that engine stand for the one that belongs to the package, which need not be there yet."""
    tornado.__path__.insert(0, str(ROOT / "tornado"))
    spec = importlib.util.spec_from_file_location("tornado.stm._engine", path)
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])


async def serve():
    server = tornado.httpserver.HTTPServer(application())
    server.listen(0, HOST)
    loop = asyncio.get_running_loop()
    lines = await loop.create_server(Lines, HOST, 0)
    stream = await asyncio.start_server(answer_stream, HOST, 0)
    sockets = [*server._sockets.values(), *lines.sockets, *stream.sockets]
    ports = [str(socket.getsockname()[1]) for socket in sockets]
    client = await asyncio.create_subprocess_exec(sys.executable, __file__, "client", *ports)
    return await client.wait()


def main(first, *others):
    if first == "client":
        asyncio.run(be_client(*map(int, others)))
        return 0
    load_engine(first)
    import tornado.stm

    return tornado.stm.run(serve(), threads=int(others[0]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
