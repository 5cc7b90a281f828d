"""Tornado's own tests, which come with the installed Tornado: the same modules that ``python -m tornado.test`` runs."""

import logging
import warnings

PREFIX = "tornado."

#: for the processes that run the tests
ENVIRONMENT = {"ASYNC_TEST_TIMEOUT": "30"}  # seconds; the default is 5, which says more of the machine than of the loop


#: loaded by ``tornado.test``, but without a test in it
EMPTY = {"tornado.iostream.doctests"}


def modules():
    """The names of what `unittest` can load, and find tests in."""
    from tornado.test import runtests

    return [name for name in runtests.TEST_MODULES if name not in EMPTY]


MODULES = modules()


def prepare():
    """What ``tornado.test`` does before it runs tests: warnings are errors, and the access log is quiet."""
    warnings.filterwarnings("error")
    warnings.filterwarnings("ignore", category=ImportWarning)
    for category in DeprecationWarning, PendingDeprecationWarning:
        warnings.filterwarnings("ignore", category=category)
        warnings.filterwarnings("error", category=category, module=r"tornado\..*")
    logging.getLogger("tornado.access").setLevel(logging.CRITICAL)


def install(threads):
    """Let the tests' event loops be transactional."""
    import tornado.stm

    tornado.stm.install(threads)
