"""Quart under uvicorn: ``GET /N`` answers the primes up to N."""

import quart
import uvicorn

from stm_bench.primes import primes

app = quart.Quart(__name__)


@app.get("/<int:limit>")
async def get(limit):
    return {"primes": primes(limit)}


async def serve(port, given):
    await uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")).serve()
