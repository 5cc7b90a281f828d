"""Benchmarks of tornado.stm: ``python -m stm_bench primes``.

One module holds each concern:

    primes.py       the server under load, an ordinary Tornado application
    primes_load.py  the benchmark: which servers, in which order, with which load
    servers.py      interpreters, and server processes
    siege.py        the load generator and what it reports
    calibrate.py    how large a request takes so many milliseconds here
    report.py       from runs to figures, and figures as a table or as JSON
    plot.py         figures as a picture
    progress.py     what a user sees while it runs
    errors.py       what goes wrong with one line
"""
