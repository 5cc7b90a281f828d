"""The workloads: what is measured in each of the ways that there are (stm_bench.ways).

    workload.py     what they have in common
    pages.py        pages that compute, as web developers have them
    shared.py       pages that read and change what all requests share
    astar.py        a game on one map, and the client that plays it and knows which paths are possible
    sums.py         a server for numbers, without HTTP: Beazley's, and koder-ua's many small messages
    chat.py         a room of web sockets
    programs.py     what is no server: a crawler, a store of primes, hand-offs, pi

The modules run on every interpreter that is compared, also on Python 3.9 (PyPy): so they import nothing but the standard library, Tornado,
and each other.
"""

import importlib

#: where each is, in the order in which they are shown
MODULES = {
    "primes": "pages", "primes-small": "pages", "primes-numba": "pages", "sieve": "pages", "catalogue": "pages", "template": "pages",
    "json": "pages", "hello": "pages", "hello-1": "pages", "session": "shared", "counter": "shared",
    "astar": "astar", "astar-building": "astar", "chat": "chat", "sums": "sums", "sums-yielding": "sums", "affinity": "sums",
    "convoy": "programs", "convoy-alone": "programs", "crawler": "programs", "primesdb": "programs", "pi": "programs",
}  # fmt: skip


def load(name):
    """The Workload of that name."""
    return importlib.import_module("stm_bench.workloads." + MODULES[name]).WORKLOADS[name]
