"""Tornado with ``sqlite3``: ``GET /N`` asks a table for 100 rows, with one connection for all, and answers the primes up to N."""

import asyncio
import sqlite3
import tempfile

import tornado.httpserver
import tornado.web

from stm_bench.primes import primes

ROWS = 100


class Primes(tornado.web.RequestHandler):
    def get(self, limit):
        rows = self.application.db.execute("SELECT k, text FROM notes WHERE k < ? ORDER BY k DESC", (ROWS,)).fetchall()
        if len(rows) != ROWS:
            raise tornado.web.HTTPError(500)
        self.write({"primes": primes(int(limit))})


async def serve(port, certificate):
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        db = sqlite3.connect(file.name)
        db.execute("CREATE TABLE notes (k INTEGER PRIMARY KEY, text TEXT)")
        db.executemany("INSERT INTO notes VALUES (?, ?)", [(k, f"note {k}") for k in range(10 * ROWS)])
        db.commit()
        app = tornado.web.Application([(r"/([0-9]+)", Primes)])
        app.db = db
        tornado.httpserver.HTTPServer(app).listen(port)
        await asyncio.Event().wait()
