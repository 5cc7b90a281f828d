"""Programs for PyPy-STM's ``transaction`` module, as they run here.

    words     a parallel loop over a dict
    pipeline  producers and consumers
"""
