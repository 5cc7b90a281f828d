"""Ways from one task to another: one sends, one receives, and what is sent comes out in its order."""

import asyncio
import json
import os
import socket
from collections import deque


class Queue:
    """A channel: made on the loop, opened, used, closed."""

    def __init__(self):
        self.queue = asyncio.Queue()

    async def open(self):
        pass

    async def send(self, value):
        await self.queue.put(value)

    async def receive(self):
        return await self.queue.get()

    def close(self):
        pass


class QueueAtOnce(Queue):
    async def send(self, value):
        self.queue.put_nowait(value)


class Threads(Queue):
    """What is sent comes from a thread of the executor."""

    async def send(self, value):
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, loop.call_soon_threadsafe, self.queue.put_nowait, value)


class Generator(Queue):
    """Received through an asynchronous generator that stays suspended."""

    def __init__(self):
        super().__init__()
        self.values = self.make_values()

    async def make_values(self):
        number, queues = 0, [self.queue]
        while True:
            for queue in queues:
                value = await queue.get()
                number += 1
                yield number, value

    async def receive(self):
        number, value = await anext(self.values)
        return value


class Condition(Queue):
    def __init__(self):
        self.condition, self.items = asyncio.Condition(), deque()

    async def send(self, value):
        async with self.condition:
            self.items.append(value)
            self.condition.notify()

    async def receive(self):
        async with self.condition:
            await self.condition.wait_for(lambda: self.items)
            return self.items.popleft()


class Event(Queue):
    def __init__(self):
        self.event, self.items = asyncio.Event(), []

    async def send(self, value):
        self.items.append(value)
        self.event.set()

    async def receive(self):
        while not self.items:
            self.event.clear()
            await self.event.wait()
        return self.items.pop(0)


class Futures(Queue):
    """Each has a value and the next one."""

    def __init__(self):
        self.to_set = self.to_await = asyncio.get_running_loop().create_future()

    async def send(self, value):
        future, self.to_set = self.to_set, asyncio.get_running_loop().create_future()
        future.set_result((value, self.to_set))

    async def receive(self):
        value, self.to_await = await self.to_await
        return value


def line_of(value):
    return json.dumps(value).encode() + b"\n"


class Sockets(Queue):
    def __init__(self):
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.received = b""

    async def send(self, value):
        await asyncio.get_running_loop().sock_sendall(self.near, line_of(value))

    async def receive(self):
        while b"\n" not in self.received:
            self.received += await asyncio.get_running_loop().sock_recv(self.far, 7)
        line, _, self.received = self.received.partition(b"\n")
        return json.loads(line)

    def close(self):
        self.near.close()
        self.far.close()


class Reader(Sockets):
    """add_reader(), with a callback that leaves some of what there is for the next call."""

    def __init__(self):
        super().__init__()
        self.items, self.waiter = deque(), None
        asyncio.get_running_loop().add_reader(self.far, self.ready)

    async def send(self, value):
        self.near.send(line_of(value))

    def ready(self):
        self.received += self.far.recv(5)
        *lines, self.received = self.received.split(b"\n")
        self.items.extend(map(json.loads, lines))
        if self.items and self.waiter and not self.waiter.done():
            self.waiter.set_result(None)

    async def receive(self):
        while not self.items:
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter
        return self.items.popleft()

    def close(self):
        asyncio.get_running_loop().remove_reader(self.far)
        super().close()


class Writer(Sockets):
    """add_writer(), with a callback that writes some of what there is, and is removed with the last."""

    def __init__(self):
        super().__init__()
        self.left = b""

    async def send(self, value):
        if not self.left:
            asyncio.get_running_loop().add_writer(self.near, self.ready)
        self.left += line_of(value)

    def ready(self):
        sent = self.near.send(self.left[:6])
        self.left = self.left[sent:]
        if not self.left:
            asyncio.get_running_loop().remove_writer(self.near)


class Streams(Sockets):
    async def open(self):
        _, self.writer = await asyncio.open_connection(sock=self.near)
        self.reader, self.other_writer = await asyncio.open_connection(sock=self.far)

    async def send(self, value):
        self.writer.write(line_of(value))
        await self.writer.drain()

    async def receive(self):
        return json.loads(await self.reader.readline())

    def close(self):
        self.writer.close()
        self.other_writer.close()


class Pipe(Queue):
    def __init__(self):
        self.reading, self.writing = os.pipe()

    async def open(self):
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader()
        self.source, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self.reader), os.fdopen(self.reading, "rb", 0)
        )
        self.sink, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(self.writing, "wb", 0))

    async def send(self, value):
        self.sink.write(line_of(value))

    async def receive(self):
        return json.loads(await self.reader.readline())

    def close(self):
        self.sink.close()
        self.source.close()


ALL = [Queue, QueueAtOnce, Threads, Generator, Condition, Event, Futures, Sockets, Reader, Writer, Streams, Pipe]
