"""A bank: FastAPI under uvicorn, pydantic's models, SQLAlchemy's ORM on SQLite.  ``bank_api.py FILE`` prints its port."""

import asyncio
import contextlib
import logging
import socket
import sys

import uvicorn
from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy import ForeignKey, func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

ACCOUNTS, EACH = 20, 1000

engine = create_async_engine(f"sqlite+aiosqlite:///{sys.argv[1]}")
sessions = async_sessionmaker(engine, expire_on_commit=False)
one_changes = asyncio.Lock()  # SQLite has one lock for all, and gives up waiting for it
answered = {"moved": 0, "refused": 0}


@contextlib.asynccontextmanager
async def lifespan(app):
    yield
    await engine.dispose()  # not after uvicorn's end, at which it sends itself the signal again that has ended it


app = FastAPI(lifespan=lifespan)


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"
    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]


class Move(Base):
    __tablename__ = "moves"
    id: Mapped[int] = mapped_column(primary_key=True)
    source: Mapped[int] = mapped_column(ForeignKey(Account.id))
    target: Mapped[int] = mapped_column(ForeignKey(Account.id))
    amount: Mapped[int]


class Wish(BaseModel):
    source: int = Field(ge=0, lt=ACCOUNTS)
    target: int = Field(ge=0, lt=ACCOUNTS)
    amount: int = Field(gt=0)


class Moved(BaseModel):
    amounts: list[int]
    checked: int


class Totals(BaseModel):
    total: int
    moves: int
    answered: dict[str, int]


async def session():
    async with sessions() as s:
        yield s


def check(amount):
    """What a handler computes with what it has got."""
    return sum(number * amount % 7 for number in range(3000))


@app.post("/moves")
async def move(wish: Wish, s: AsyncSession = Depends(session)) -> Moved:
    async with one_changes:
        source, target = await s.get(Account, wish.source), await s.get(Account, wish.target)
        if source.amount < wish.amount:
            answered["refused"] += 1
            raise HTTPException(409, f"{source.amount} is not enough")
        source.amount -= wish.amount
        target.amount += wish.amount
        s.add(Move(source=wish.source, target=wish.target, amount=wish.amount))
        await s.commit()
    answered["moved"] += 1
    return Moved(amounts=[source.amount, target.amount], checked=check(wish.amount))


@app.get("/totals")
async def totals(s: AsyncSession = Depends(session)) -> Totals:
    total = (await s.execute(select(func.sum(Account.amount)))).scalar_one()
    moves = (await s.execute(select(func.count()).select_from(Move))).scalar_one()
    return Totals(total=total, moves=moves, answered=answered)


async def main():
    async with engine.begin() as c:
        await c.run_sync(Base.metadata.create_all)
    async with sessions() as s:
        s.add_all(Account(id=k, amount=EACH) for k in range(ACCOUNTS))
        await s.commit()
    listening = socket.create_server(("127.0.0.1", 0), backlog=100)
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve([listening])


if __name__ == "__main__":
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    asyncio.run(main())
