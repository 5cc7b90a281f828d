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

    #: what can be done to it that an aborted attempt is to leave no trace of
    UPSETS = [
        lambda self: self.queue.put_nowait("never"),
        lambda self: self.queue.get_nowait(),
        lambda self: self.queue.shutdown(immediate=True),
        lambda self: self.close(),
    ]

    def upset(self, number):
        self.UPSETS[number % len(self.UPSETS)](self)


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

    UPSETS = [lambda self: self.values.aclose().send(None), lambda self: self.values.athrow(ValueError).send(None), *Queue.UPSETS]


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

    UPSETS = [
        lambda self: self.items.append("never"),
        lambda self: self.items.clear(),
        lambda self: self.condition.notify_all(),
        lambda self: self.condition.release(),
    ]


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

    UPSETS = [lambda self: self.items.append("never"), lambda self: self.event.set(), lambda self: self.event.clear()]


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

    UPSETS = [
        lambda self: self.to_set.set_result(("never", None)),
        lambda self: self.to_set.set_exception(ValueError("never")),
        lambda self: self.to_await.cancel(),
        lambda self: self.to_await.add_done_callback(print),
    ]


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

    UPSETS = [
        lambda self: self.near.send(b"never\n"),
        lambda self: self.near.sendall(b"never\n"),
        lambda self: self.far.recv(100),
        lambda self: self.far.recv_into(bytearray(3)),
        lambda self: self.near.shutdown(socket.SHUT_WR),
        lambda self: self.far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1),
        lambda self: self.far.setblocking(True),
        lambda self: self.near.settimeout(1),
        lambda self: self.near.detach(),
        lambda self: self.close(),
    ]


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

    UPSETS = [
        lambda self: asyncio.get_running_loop().remove_reader(self.far),
        lambda self: asyncio.get_running_loop().add_reader(self.far, print),
        lambda self: asyncio.get_running_loop().add_writer(self.far, print, "never"),
        lambda self: self.ready(),
        *Sockets.UPSETS,
    ]


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

    UPSETS = [
        lambda self: asyncio.get_running_loop().remove_writer(self.near),
        lambda self: asyncio.get_running_loop().add_writer(self.near, print, "never"),
        lambda self: asyncio.get_running_loop().add_reader(self.near, print, "never"),
        lambda self: self.ready(),
        *Sockets.UPSETS,
    ]


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

    UPSETS = [
        lambda self: self.writer.write(b"never"),
        lambda self: self.writer.writelines([b"never", b"more"]),
        lambda self: self.writer.transport.abort(),
        lambda self: self.other_writer.transport.pause_reading(),
        lambda self: self.other_writer.close(),
        lambda self: self.writer.write_eof(),
        lambda self: self.reader.feed_data(b"never"),
        lambda self: self.reader.feed_eof(),
        lambda self: self.reader.set_exception(ValueError("never")),
        lambda self: self.writer.transport.set_write_buffer_limits(0),
    ]


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

    UPSETS = [
        lambda self: self.sink.write(b"never"),
        lambda self: self.sink.write_eof(),
        lambda self: self.sink.abort(),
        lambda self: self.source.pause_reading(),
        lambda self: self.close(),
    ]


ALL = [Queue, QueueAtOnce, Threads, Generator, Condition, Event, Futures, Sockets, Reader, Writer, Streams, Pipe]
