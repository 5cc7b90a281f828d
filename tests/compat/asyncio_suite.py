"""CPython's own tests of asyncio, which come with the interpreter: those that a selector event loop has to do with.

The tests make the loop by its class, so that is replaced too: what a test calls ``asyncio.SelectorEventLoop`` is ours.
"""

import importlib.util

PREFIX = "test.test_asyncio."

ENVIRONMENT = {}

#: those of other event loops, of their mock-ups, and of tools are left out
MODULES = [PREFIX + name for name in """
    test_base_events test_buffered_proto test_context test_eager_task_factory test_events test_free_threading test_futures
    test_futures2 test_graph test_locks test_pep492 test_protocols test_queues test_runners test_selector_events test_sendfile
    test_server test_sock_lowlevel test_ssl test_sslproto test_staggered test_streams test_subprocess test_taskgroups
    test_tasks test_threads test_timeouts test_transports test_unix_events test_waitfor
""".split() if importlib.util.find_spec("test") and importlib.util.find_spec("test.test_asyncio")]


def prepare():
    """Let the tests do what they do under ``python -m test -u all``: use the network, and the time that they need."""
    from test import support

    support.use_resources = ["cpu", "network", "walltime"]


def install(threads):
    """Let the tests' event loops be transactional."""
    import asyncio

    import tornado.stm
    from tornado.stm.loop.eventloop import TransactionalEventLoop

    class SelectorEventLoop(TransactionalEventLoop):
        """Made as upstream's is: the selector that it is given goes unused."""

        def __init__(self, selector=None):
            super().__init__(threads)

    tornado.stm.install(threads)
    for module in asyncio, asyncio.unix_events:
        module.SelectorEventLoop = module.EventLoop = SelectorEventLoop
