"""Tests of tornado.platform.pypystm, for CPython 2.7 with the emulated module `transaction` beside this file."""

from __future__ import absolute_import, division, print_function

import calendar
import datetime
import email.utils
import functools
import logging
import os
import random
import re
import signal
import socket
import threading
import time
import unittest

import repository  # noqa: F401: for its effect
import transaction
from inevitable import HandlersComputeFirst

from tornado import gen, httputil, iostream, netutil, web
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop, TimeoutError
from tornado.platform import pypystm
from tornado.platform.pypystm import STMIOLoop

OLD = not hasattr(transaction, "TransactionQueue")
ON_THIS_THREAD = os.environ.get("PYPYSTM_TEST_THREADS", "0") == "0"

WATCHER = HandlersComputeFirst()


class Records(logging.Handler):
    """The messages of a logger while it is a context."""

    def __init__(self, name):
        logging.Handler.__init__(self)
        self.logger = logging.getLogger(name)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())

    def __enter__(self):
        self.propagate, self.logger.propagate = self.logger.propagate, False
        self.level_before = self.logger.level
        self.logger.setLevel(logging.INFO)
        self.logger.addHandler(self)
        return self.messages

    def __exit__(self, *exc_info):
        self.logger.removeHandler(self)
        self.logger.setLevel(self.level_before)
        self.logger.propagate = self.propagate


class LoopTest(unittest.TestCase):
    options = {}

    def setUp(self):
        IOLoop.configure(STMIOLoop, **self.options)
        self.loop = IOLoop()
        self.loop.make_current()
        self.happened = []

    def tearDown(self):
        IOLoop.clear_current()
        self.loop.close(all_fds=True)
        IOLoop.configure(None)

    def do(self, function, *args):
        """Runs `function` in a transaction."""
        self.loop.add_callback(function, *args)

    def note(self, what):
        self.happened.append(what)

    def run_until_idle(self):
        """Until the callbacks of ten rounds have run."""
        def wait(rounds):
            if rounds:
                self.loop.add_callback(wait, rounds - 1)
            else:
                self.loop.stop()
        self.loop.add_callback(wait, 10)
        self.loop.start()


class OrderTest(LoopTest):
    def test_what_a_transaction_schedules_runs_after_it_and_in_order(self):
        def schedule():
            for number in range(20):
                self.loop.add_callback(self.note, number)
            self.note("scheduled")
        self.do(schedule)
        self.run_until_idle()
        self.assertEqual(self.happened, ["scheduled"] + list(range(20)))

    def test_what_comes_from_outside_runs_in_order(self):
        for number in range(20):
            self.loop.add_callback(self.note, number)
        self.run_until_idle()
        self.assertEqual(self.happened, list(range(20)))

    def test_transactions_of_different_strands_run_in_any_order(self):
        for number in range(20):
            self.loop.add_transaction(self.note, number)
        self.run_until_idle()
        self.assertEqual(sorted(self.happened), list(range(20)))
        self.assertNotEqual(self.happened, list(range(20)))

    def test_a_strand_goes_on_in_the_next_rounds(self):
        def steps(name, left):
            self.note(name)
            if left:
                self.loop.add_callback(steps, name, left - 1)

        def schedule():
            steps("a", 4)
            steps("b", 4)
        self.loop.add_transaction(schedule)
        self.run_until_idle()
        self.assertEqual("".join(self.happened), "ababababab")

    def test_timers_of_a_strand_fire_in_the_order_of_their_deadlines(self):
        def arm():
            for number in [3, 1, 2, 0]:
                self.loop.call_at(number, self.note, number)
            self.loop.call_at(3, self.note, 4)
        self.do(arm)
        self.run_until_idle()
        self.assertEqual(self.happened, [0, 1, 2, 3, 4])

    def test_transactions_keep_what_they_schedule_to_themselves(self):
        def state():
            return dict((name, len(value) if hasattr(value, "__len__") else repr(value))
                        for name, value in vars(self.loop).items())

        timer = self.loop.call_later(3600, self.fail)

        def look():
            before = state()
            self.loop.add_callback(self.note, "callback")
            self.loop.add_transaction(self.note, "transaction")
            self.loop.remove_timeout(self.loop.call_later(3600, self.fail))
            self.loop.remove_timeout(timer)
            self.assertEqual(state(), before)
            self.note("looked")
        self.do(look)
        self.run_until_idle()
        self.assertEqual(sorted(self.happened), ["callback", "looked", "transaction"])


class TimerTest(LoopTest):
    def test_a_timer_can_be_cancelled_in_the_round_in_which_it_is_due(self):
        def arm():
            self.loop.call_at(0, cancel)
            victims.append(self.loop.call_at(1, self.fail, "it was cancelled"))

        def cancel():
            self.loop.remove_timeout(victims[0])
            self.note("cancelled")
        victims = []
        self.do(arm)
        with Records("tornado.application") as messages:
            self.run_until_idle()
        self.assertEqual((self.happened, messages), (["cancelled"], []))

    def test_many_cancelled_timers_leave_the_heap(self):
        def arm():
            for timer in [self.loop.call_later(3600, self.fail) for _ in range(2000)]:
                self.loop.remove_timeout(timer)
            self.loop.call_later(3600, self.fail)
        self.do(arm)
        self.run_until_idle()
        self.assertEqual(len(self.loop._timers), 1)

    def test_timers_that_have_fired_do_not_count_as_cancelled(self):
        timer = self.loop.call_at(0, self.note, "fired")
        self.run_until_idle()
        self.loop.remove_timeout(timer)
        self.assertEqual((self.happened, self.loop._cancelled), (["fired"], 0))

    def test_deadlines_are_numbers_or_timedeltas(self):
        self.assertRaises(TypeError, self.loop.call_at, "soon", self.fail)
        self.assertRaises(TypeError, self.loop.add_timeout, "soon", self.fail)

    def test_a_timer_ends_the_poll(self):
        self.do(self.loop.call_later, 0.01, self.loop.stop)
        self.loop.start()


class StartAndStopTest(LoopTest):
    def test_stop_before_start(self):
        self.do(self.note, "too early")
        self.loop.stop()
        self.loop.start()
        self.assertEqual(self.happened, [])
        self.run_until_idle()
        self.assertEqual(self.happened, ["too early"])

    def test_what_is_left_runs_at_the_next_start(self):
        def stop():
            self.loop.add_callback(self.note, "later")
            self.loop.stop()
        self.do(stop)
        self.loop.start()
        self.assertEqual(self.happened, [])
        self.run_until_idle()
        self.assertEqual(self.happened, ["later"])

    def test_what_the_last_event_schedules_runs(self):
        def stop(fd, events):
            self.loop.remove_handler(fd)
            self.loop.add_callback(self.note, "before the end")
            self.loop.stop()
        reader, writer = os.pipe()
        self.loop.add_handler(reader, stop, self.loop.READ)
        os.write(writer, b"x")
        self.loop.start()
        os.close(reader)
        os.close(writer)
        self.assertEqual(self.happened, ["before the end"])

    def test_run_sync(self):
        @gen.coroutine
        def three():
            yield gen.sleep(0.001)
            raise gen.Return(3)

        @gen.coroutine
        def fail():
            yield gen.moment
            raise KeyError("x")
        self.assertEqual(self.loop.run_sync(three), 3)
        self.assertRaises(KeyError, self.loop.run_sync, fail)
        self.assertRaises(TimeoutError, self.loop.run_sync, lambda: gen.sleep(3600), timeout=0.01)
        self.assertEqual(self.loop.run_sync(three), 3)

    def test_a_loop_that_runs_cannot_be_started(self):
        with Records("tornado.application") as messages:
            self.do(self.loop.start)
            self.run_until_idle()
        self.assertEqual(len(messages), 1)

    def test_several_loops_one_after_the_other(self):
        for number in range(3):
            loop = IOLoop(make_current=False)
            loop.add_callback(lambda: self.note(IOLoop.current() is loop))
            loop.add_callback(loop.stop)
            loop.start()
            loop.close()
        self.assertEqual(self.happened, [True] * 3)
        self.assertTrue(IOLoop.current() is self.loop)

    def test_a_loop_inside_a_transaction(self):
        @gen.coroutine
        def inner():
            self.note(IOLoop.current() is loop)
            yield gen.sleep(0.001)
            self.note("inner")

        def outer():
            loop.run_sync(inner)
            self.note(IOLoop.current() is self.loop)
        loop = IOLoop(make_current=False)
        self.do(outer)
        self.run_until_idle()
        loop.close()
        self.assertEqual(self.happened, [True, "inner", True])

    def test_close_closes_files(self):
        loop = IOLoop(make_current=False)
        ours, theirs = socket.socketpair()
        loop.add_handler(ours, self.fail, loop.READ)
        loop.close(all_fds=True)
        self.assertRaises(socket.error, ours.send, b"x")
        theirs.close()
        loop.add_callback(self.fail)  # ignored

    def test_threads_must_be_positive(self):
        for wrong in 0, -1, 1.5, "2":
            self.assertRaises(ValueError, IOLoop, threads=wrong)


class OutsideTest(LoopTest):
    def test_another_thread_wakes_the_loop(self):
        def work():
            self.loop.add_callback(self.note, "from outside")
            self.loop.add_callback(self.loop.stop)
        worker = threading.Thread(target=work)
        self.do(worker.start)
        self.loop.start()
        worker.join()
        self.assertEqual(self.happened, ["from outside"])

    def test_a_signal_wakes_the_loop(self):
        def handle(signum, frame):
            self.loop.add_callback_from_signal(self.note, "signal")
            self.loop.add_callback_from_signal(self.loop.stop)
        before = signal.signal(signal.SIGUSR1, handle)
        try:
            self.do(os.kill, os.getpid(), signal.SIGUSR1)
            self.loop.start()
        finally:
            signal.signal(signal.SIGUSR1, before)
        self.assertEqual(self.happened, ["signal"])

    @unittest.skipUnless(ON_THIS_THREAD, "CPython runs signal handlers on the main thread, which waits")
    def test_a_callback_that_blocks_is_logged(self):
        def block():
            while not messages:
                pass
            self.loop.stop()
        before = signal.getsignal(signal.SIGALRM)
        try:
            self.loop.set_blocking_log_threshold(0.001)
            self.do(block)
            with Records("tornado.general") as messages:
                self.loop.start()
        finally:
            signal.signal(signal.SIGALRM, before)
        self.assertTrue(messages[0].startswith("IOLoop blocked"), messages)
        self.assertEqual(signal.getitimer(signal.ITIMER_REAL)[0], 0)

    def test_nothing_blocks_while_the_loop_polls(self):
        before = signal.getsignal(signal.SIGALRM)
        try:
            self.loop.set_blocking_signal_threshold(60, self.fail)
            self.do(self.loop.call_later, 0.01, self.loop.stop)
            poll, alarms = self.loop._epoll.poll, []

            class Poller(object):
                def poll(self, timeout):
                    alarms.append(signal.getitimer(signal.ITIMER_REAL)[0])
                    return poll(timeout)
            self.loop._epoll = Poller()
            self.loop.start()
        finally:
            signal.signal(signal.SIGALRM, before)
        self.assertEqual(set(alarms), {0})


class ErrorTest(LoopTest):
    def test_errors_are_logged_and_the_loop_goes_on(self):
        self.do(lambda: 1 // 0)
        self.do(self.note, "on")
        with Records("tornado.application") as messages:
            self.run_until_idle()
        self.assertEqual(self.happened, ["on"])
        self.assertEqual(len(messages), 1)
        self.assertTrue(messages[0].startswith("Exception in callback"), messages)

    def test_errors_of_handlers_are_logged_but_for_broken_pipes(self):
        def handle(error, fd, events):
            self.loop.remove_handler(fd)
            raise error
        pipes = []
        for error in KeyError("x"), OSError(32, "broken pipe"), OSError(5, "input/output error"):
            reader, writer = os.pipe()
            pipes += [reader, writer]
            self.loop.add_handler(reader, functools.partial(handle, error), self.loop.READ)
            os.write(writer, b"x")
        with Records("tornado.application") as messages:
            self.run_until_idle()
        for fd in pipes:
            os.close(fd)
        self.assertEqual(len(messages), 2)

    def test_an_exception_that_ends_the_loop_loses_no_callback(self):
        def interrupt():
            raise KeyboardInterrupt
        for number in range(10):
            self.loop.add_transaction(self.note, number)
        self.loop.add_transaction(interrupt)
        self.loop.call_at(0, self.note, "timer")
        self.assertRaises(KeyboardInterrupt, self.loop.start)
        self.loop.stop()
        self.loop.start()  # as on upstream's loop, this only notices the stop
        self.run_until_idle()
        self.assertEqual(sorted(self.happened), list(range(10)) + ["timer"])


class EventTest(LoopTest):
    def test_a_handler_removed_in_the_same_round_is_not_called(self):
        pairs = [socket.socketpair() for _ in range(2)]

        def handle(sock, events):
            self.note("called")
            for ours, _ in pairs:
                self.loop.remove_handler(ours)
        for ours, theirs in pairs:
            self.loop.add_handler(ours, handle, self.loop.READ)
            theirs.send(b"x")
        self.run_until_idle()
        self.assertEqual(self.happened, ["called"])
        for pair in pairs:
            for sock in pair:
                sock.close()

    def test_an_old_event_is_not_given_to_the_next_handler_of_that_number(self):
        pairs = [socket.socketpair() for _ in range(2)]
        quiet, other = socket.socketpair()

        def handle(fd, events):
            self.note("called")
            for ours, _ in pairs:
                self.loop.remove_handler(ours.fileno())
                os.dup2(quiet.fileno(), ours.fileno())
                self.loop.add_handler(ours.fileno(), self.fail, self.loop.READ)
        for ours, theirs in pairs:
            self.loop.add_handler(ours.fileno(), handle, self.loop.READ)
            theirs.send(b"x")
        with Records("tornado.application") as messages:
            self.run_until_idle()
        self.assertEqual((self.happened, messages), (["called"], []))
        for pair in pairs:
            self.loop.remove_handler(pair[0].fileno())
            for sock in pair:
                sock.close()


class ContentionTest(unittest.TestCase):
    """The parts, without a server."""

    def test_dates_are_formatted_as_ever(self):
        ours = functools.partial(pypystm._formatdate, None, None, usegmt=True)
        generator = random.Random(1)
        for _ in range(2000):
            when = generator.uniform(-2 ** 33, 2 ** 35)
            self.assertEqual(ours(when), email.utils.formatdate(when, usegmt=True))
        for when in 0, 951782400, 951868800, 4107542400, 2 ** 31, -0.5:
            self.assertEqual(ours(when), email.utils.formatdate(when, usegmt=True))

    def test_outside_of_transactions_tornado_is_as_it_was(self):
        self.assertEqual(httputil.format_timestamp(1359312200), "Sun, 27 Jan 2013 18:43:20 GMT")
        before, between, after = time.time(), web.time.time(), time.time()
        self.assertTrue(before <= between <= after)
        self.assertTrue(web.time.gmtime is time.gmtime)


class App(web.RequestHandler):
    """Answers as the path says."""

    def initialize(self):
        if self.request.path == "/no-handler":
            raise KeyError("no handler")

    @gen.coroutine
    def prepare(self):
        if self.request.path == "/slow":
            yield gen.sleep(0.001)

    def get(self, name):
        if name == "error":
            raise KeyError("an error")
        if name == "missing":
            raise web.HTTPError(404)
        if name == "big":
            self.write("x" * 100000)
        if name == "dated":
            self.set_header("Last-Modified", datetime.datetime(2013, 1, 27))
        self.write({"name": name, "arguments": self.request.arguments})
        if name == "stop":
            self.finish()
            IOLoop.current().stop()

    def post(self, name):
        self.write(str(len(self.request.body)))


@web.stream_request_body
class Upload(web.RequestHandler):
    @gen.coroutine
    def prepare(self):
        self.size = 0
        if "fail" in self.request.path:
            raise web.HTTPError(403)
        yield gen.moment

    def initialize(self):
        if "no-handler" in self.request.path:
            raise KeyError("no handler")

    def data_received(self, chunk):
        self.size += len(chunk)

    def put(self, name):
        self.write(str(self.size))


def serve(requests, loop=None, **options):
    """What clients receive for the bytes that they send, one connection each, and the log of accesses."""
    IOLoop.configure(loop or STMIOLoop, **options)
    loop = IOLoop()
    loop.make_current()
    server = HTTPServer(web.Application([(r"/upload/(.*)", Upload), (r"/(.*)", App)]))
    socks = netutil.bind_sockets(0, "127.0.0.1")
    server.add_sockets(socks)

    @gen.coroutine
    def client(data):
        stream = iostream.IOStream(socket.socket())
        yield stream.connect(socks[0].getsockname())
        stream.write(data)
        answer = yield stream.read_until_close()
        raise gen.Return(answer)

    @gen.coroutine
    def everybody():
        answers = yield [client(data) for data in requests]
        raise gen.Return(answers)

    try:
        with Records("tornado.access") as accesses, Records("tornado.application"):
            answers = loop.run_sync(everybody, timeout=60)
    finally:
        IOLoop.clear_current()
        server.stop()
        loop.close(all_fds=True)
        IOLoop.configure(None)
    return answers, accesses


def request(path, method="GET", more=b"", close=True):
    head = "%s %s HTTP/1.1\r\nHost: x\r\n%s" % (method, path, "Connection: close\r\n" if close else "")
    return head.encode() + (more or b"\r\n")


def body(data):
    return b"Content-Length: %d\r\n\r\n%s" % (len(data), data)


REQUESTS = [
    request("/a?x=1"), request("/big"), request("/error"), request("/missing"), request("/dated"), request("/slow"),
    request("/a", "HEAD"), request("/a", "POST", body(b"x" * 70000)), request("/a", "DELETE"), b"nonsense\r\n\r\n",
    request("/no-handler"), request("/upload/a", "PUT", body(b"x" * 200000)),
    request("/upload/fail", "PUT", body(b"x" * 10)), request("/upload/no-handler", "PUT", body(b"x" * 10)),
    b"".join(request("/%d" % n, close=n == 4) for n in range(5)),  # pipelined
    b"".join(request("/p%d" % n, "POST", body(b"x" * n), close=n == 4) for n in range(5)),
]


DATE = br"(?m)^Date: (.*)\r$"


class RequestTest(unittest.TestCase):
    def test_clients_get_what_upstream_sends(self):
        plain, plain_log = serve(REQUESTS, loop="tornado.platform.epoll.EPollIOLoop")
        self.assertTrue(all(b"HTTP/1.1" in answer for answer in plain[:9]), plain)
        for options in {}, {"decontend": False}, {"threads": 1}:
            ours, our_log = serve(REQUESTS, **options)
            for sent, ours, plain_one in zip(REQUESTS, ours, plain):
                self.assertEqual(re.sub(DATE, b"", ours), re.sub(DATE, b"", plain_one), sent[:60])
            self.assertEqual(len(our_log), len(plain_log))

    def test_the_date_is_right_to_the_second(self):
        before = int(time.time())
        answers, _ = serve([request("/a")])
        date = calendar.timegm(email.utils.parsedate(re.search(DATE, answers[0]).group(1)))
        self.assertTrue(before <= date <= time.time(), (before, date))

    def test_access_log_lines_of_a_connection_are_in_order(self):
        connections = [b"".join(request("/%d/%d" % (c, n), close=n == 9) for n in range(10)) for c in range(10)]
        answers, lines = serve(connections)
        paths = [line.split()[2] for line in lines]
        self.assertEqual(len(paths), 100)
        for c in range(10):
            mine = [path for path in paths if path.startswith("/%d/" % c)]
            self.assertEqual(mine, ["/%d/%d" % (c, n) for n in range(10)])

    def test_a_line_is_written_even_if_the_handler_stops_the_loop(self):
        _, lines = serve_until_stopped(request("/stop"))
        self.assertEqual([line.split()[:3] for line in lines], [["200", "GET", "/stop"]])

    @unittest.skipIf(OLD, "its clock is inevitable")
    def test_handlers_compute_before_they_become_inevitable(self):
        WATCHER.forget()
        serve([request("/a?x=%d" % n) for n in range(20)] + [request("/dated"), request("/missing")] + REQUESTS[-2:])
        self.assertEqual(WATCHER.forget(), (32, [], []))

    def test_without_decontention_they_do_not(self):
        WATCHER.forget()
        serve([request("/a"), request("/b")], decontend=False)
        handlers, before, within = WATCHER.forget()
        self.assertEqual(handlers, 2)
        self.assertTrue({"time before the handler"} <= set(before), before)
        self.assertTrue({"time in the handler", "gmtime in the handler"} <= set(within), within)


def serve_until_stopped(data):
    """The loop is stopped by the handler: what has been logged when `start` returns."""
    IOLoop.configure(STMIOLoop)
    loop = IOLoop()
    loop.make_current()
    server = HTTPServer(web.Application([(r"/(.*)", App)]))
    socks = netutil.bind_sockets(0, "127.0.0.1")
    server.add_sockets(socks)
    client = socket.create_connection(socks[0].getsockname())
    client.sendall(data)
    try:
        with Records("tornado.access") as lines:
            loop.start()
    finally:
        client.close()
        IOLoop.clear_current()
        server.stop()
        loop.close(all_fds=True)
        IOLoop.configure(None)
    return None, lines


if __name__ == "__main__":
    transaction.watch(WATCHER)
    unittest.main()
