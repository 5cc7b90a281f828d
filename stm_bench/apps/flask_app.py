"""Flask in Tornado's WSGIContainer: ``GET /N`` answers the primes up to N."""

import asyncio

import flask
import tornado.httpserver
from tornado.wsgi import WSGIContainer

from stm_bench.primes import primes

app = flask.Flask(__name__)


@app.get("/<int:limit>")
def get(limit):
    return {"primes": primes(limit)}


async def serve(port, given):
    tornado.httpserver.HTTPServer(WSGIContainer(app)).listen(port)
    await asyncio.Event().wait()
