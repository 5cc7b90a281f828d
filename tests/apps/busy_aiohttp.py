"""The requests of busy.py, under aiohttp."""

import socket

from aiohttp import web

from busy import compute_until


async def until(request):
    return web.json_response({"rounds": compute_until(request.query["file"])})


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    app = web.Application()
    app.add_routes([web.get("/until", until)])
    web.run_app(app, sock=listening, print=None)
