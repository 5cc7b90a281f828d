"""Starlette under uvicorn: ``GET /N`` answers the primes up to N."""

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from stm_bench.primes import primes


async def get(request):
    return JSONResponse({"primes": primes(request.path_params["limit"])})


async def serve(port, given):
    app = Starlette(routes=[Route("/{limit:int}", get)])
    await uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")).serve()
