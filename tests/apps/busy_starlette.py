"""The requests of busy.py, by Starlette under uvicorn."""

import socket

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from busy import compute_until


async def until(request):
    return JSONResponse({"rounds": compute_until(request.query_params["file"])})


app = Starlette(routes=[Route("/until", until)])

if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.run(app, fd=listening.fileno(), log_level="warning")
