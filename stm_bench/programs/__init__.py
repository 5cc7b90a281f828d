"""Pure-Python programs, each of which runs once plain and once inside one transaction.

A module holds one program: ``run(n)`` does n rounds of it and returns a checksum, an int that depends on all that it
computed; ``ROUNDS`` is the n that takes about 15 ms, a long request.  What a server would have at hand (a map, a
template, a table of routes, a document) belongs to the module; what a request makes is made in `run`.

    richards   an operating system's tasks that pass packets
    deltablue  an incremental solver of constraints with strengths
    nbody      planets: arithmetic on lists of floats
    nqueens    backtracking with recursive generators
    template   a page of tornado.template
    jsons      the json module, both ways, its C and its Python parts
    router     requests through the rules of tornado.routing
    astar      shortest paths on a grid
    genexprs   primes by generator expressions
    catalogue  shared objects filtered, grouped and sorted by comprehensions

``python -m stm_bench.programs PROGRAM --plain`` or ``--transaction`` runs one of them in this process, for profilers.
"""

import importlib

PROGRAMS = ("richards", "deltablue", "nbody", "nqueens", "template", "jsons", "router", "astar", "genexprs", "catalogue")


def load(name):
    """The module of a program."""
    return importlib.import_module("stm_bench.programs." + name)
