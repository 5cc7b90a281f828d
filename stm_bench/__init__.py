"""Benchmarks of tornado.stm: ``python -m stm_bench all``, or one workload by its name; ``handlers``, ``latency``, ``fresh``, ``apps``, ``engine``.

One module holds each concern:

    workloads/      what is measured: each an application, or a program, and its client
    ways.py         the ways to run them: upstream as people run it, and tornado.stm
    workload_load.py      the benchmark of all workloads in all ways, its rounds and its tables
    workload_server.py    one workload in one way, as a process
    workload_plot.py, workload_page.py    what it found, as a picture and as a page
    delay_server.py a server that answers late, for workloads that wait

    primes.py       the server of 2014, an ordinary Tornado application; pypystm/ has it for PyPy-STM
    primes_client.py      how that is run, asked and checked
    latency.py      how long trivial requests wait while heavy ones keep the same server busy
    servers.py      interpreters, and server processes
    siege.py        the load generator and what it reports
    machine.py      where it is measured; what the options of several benchmarks mean
    calibrate.py    how large a request takes so many milliseconds here

    engine_load.py  the benchmark of the engine without a server
    engine_sections.py    what it measures, and how rounds are interleaved
    engine_report.py      its tables, and those of the others
    engine_worker.py, workers.py    the processes that it measures in, from inside and from outside
    programs/, calls.py   pure-Python programs, and calls of C code, run plain and in a transaction
    engine_workloads.py   small transactions, run on one and more threads
    bank.py         transfers in transactions, with a lock, and with atomix-stm
    memory.py       what a process takes

    from_pypystm/   programs written for PyPy-STM

    apps_load.py    the benchmark of applications: their loads, which check every answer, and its table
    handlers_load.py      that of ordinary handlers of some milliseconds, to upstream's
    contention.py   that of an application whose contention is taken away, step by step
    fresh_load.py   that of servers which have just been started
    pages.py        what the two before last ask for
    app_server.py   one of them, as a process
    database_servers.py  PostgreSQL and Redis, for those that use one
    apps/           the applications: Tornado over HTTP, HTTPS and web sockets, and its handlers; aiohttp; Starlette

    progress.py     what a user sees while it runs
    errors.py       what goes wrong with one line
"""
