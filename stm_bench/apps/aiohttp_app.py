"""aiohttp: ``GET /N`` answers the primes up to N."""

import asyncio

from aiohttp import web

from stm_bench.primes import primes


async def get(request):
    return web.json_response({"primes": primes(int(request.match_info["limit"]))})


async def serve(port, given):
    app = web.Application()
    app.add_routes([web.get(r"/{limit:\d+}", get)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    await asyncio.Event().wait()
