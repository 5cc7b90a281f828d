"""The requests of busy.py, by FastAPI under uvicorn: with a model, and a parser in C."""

import socket

import pydantic
import uvicorn
from fastapi import FastAPI

from busy import compute_until


class Answer(pydantic.BaseModel):
    rounds: int
    seen: list[str]


app = FastAPI()


@app.get("/until")
async def until(file: str) -> Answer:
    return Answer(rounds=compute_until(file), seen=[file])


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.run(app, fd=listening.fileno(), http="httptools", log_level="warning")
