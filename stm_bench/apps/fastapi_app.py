"""FastAPI under uvicorn, with a model of pydantic's: ``GET /N`` answers the primes up to N."""

import pydantic
import uvicorn
from fastapi import FastAPI

from stm_bench.primes import primes


class Primes(pydantic.BaseModel):
    primes: list[int]


async def get(limit: int) -> Primes:
    return Primes(primes=primes(limit))


async def serve(port, given):
    app = FastAPI()
    app.get("/{limit}")(get)
    await uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", http="httptools")).serve()
