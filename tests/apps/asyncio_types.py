"""CPython's own tests of futures and tasks, with the engine's types in the place of those in C.

    asyncio_types.py MODULE...        of the package test.test_asyncio; prints what failed, status 1 if anything did
"""

import asyncio
import sys
import unittest

from tornado.stm import activation
from tornado.stm.loop import futures as ours

#: the classes of tests whose tasks are those in C, and which look for them among all
OF_TASKS_IN_C = """
    CTask_CFuture_Tests CTask_CFuture_SubclassTests CTaskSubclass_PyFuture_Tests CTask_PyFuture_Tests
""".split()


def main(modules):
    activation.activate()
    ours.use_engine_futures()
    asyncio.futures._CFuture = ours.Future
    asyncio.tasks._CTask = ours.Task
    if "test_eager_task_factory" in modules:
        asyncio.tasks._c_all_tasks = asyncio.tasks.all_tasks  # which its tests of tasks in C put into the place of that
    suite = unittest.TestSuite()
    for name in modules:
        suite.addTests(unittest.defaultTestLoader.loadTestsFromName(f"test.test_asyncio.{name}"))
        module = sys.modules[f"test.test_asyncio.{name}"]
        for cls in filter(None, (getattr(module, each, None) for each in OF_TASKS_IN_C)):
            assert cls.Task is None or issubclass(cls.Task, ours.Task), cls
            cls.all_tasks = staticmethod(asyncio.tasks.all_tasks)
    result = unittest.TextTestRunner(verbosity=0).run(suite)
    print(result.testsRun, "tests")
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
