"""Benchmarks of tornado.stm: ``python -m stm_bench primes``, ``handlers``, ``latency``, ``engine`` and ``apps``.

One module holds each concern:

    primes.py       the server under load, an ordinary Tornado application
    primes_load.py  the benchmark: which servers, in which order, with which load
    latency.py      how long trivial requests wait while heavy ones keep the same server busy
    servers.py      interpreters, and server processes
    siege.py        the load generator and what it reports
    calibrate.py    how large a request takes so many milliseconds here
    report.py       from runs to figures, and figures as a table or as JSON
    plot.py         figures as a picture

    engine_load.py  the benchmark of the engine without a server
    engine_sections.py    what it measures, and how rounds are interleaved
    engine_report.py      its tables
    engine_worker.py, workers.py    the processes that it measures in, from inside and from outside
    programs/       pure-Python programs, run plain and in a transaction
    workloads.py    small transactions, run on one and more threads
    bank.py         transfers in transactions, with a lock, and with atomix-stm
    memory.py       what a process takes

    from_pypystm/   programs written for PyPy-STM

    apps_load.py    the benchmark of applications: their loads, which check every answer, and its table
    handlers_load.py      that of ordinary handlers of some milliseconds, to upstream's
    app_server.py   one of them, as a process
    database_servers.py  PostgreSQL and Redis, for those that use one
    apps/           the applications: Tornado over HTTP, HTTPS and web sockets, and its handlers; aiohttp; Starlette

    progress.py     what a user sees while it runs
    errors.py       what goes wrong with one line
"""
