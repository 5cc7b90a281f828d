"""Litestar under uvicorn: ``GET /N`` answers the primes up to N."""

import litestar
import uvicorn

from stm_bench.primes import primes


@litestar.get("/{limit:int}")
async def get(limit: int) -> dict[str, list[int]]:
    return {"primes": primes(limit)}


async def serve(port, given):
    app = litestar.Litestar([get], openapi_config=None)
    await uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")).serve()
