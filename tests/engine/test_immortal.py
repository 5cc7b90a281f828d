"""Once a program is set up, its small immutable values are immortal, and what is in C: all that nobody can tell, and no more."""

import json
import subprocess
import sys

from interpreters import needs_engine

needs_engine()

PROGRAM = """
import asyncio, ctypes, gc, json, sys
import tornado.stm

def is_immortal(o):
    return ctypes.c_uint32.from_address(id(o) + 12).value == 0xFFFFFFFF  # ob_ref_local

class Name(str):
    pass

class Product:
    def __init__(self, number):
        self.name = "product %d" % number
        self.price = number * 1.25
        self.number = number * 1000
        self.code = b"%d." % number
        self.kinds = (self.name, int, Product.__init__, (self.price,))
        self.half = (self.name, [])
        self.long = "%d" % number * 600
        self.named = Name(number)

products = [Product(number + 7) for number in range(20)]
VALUES = "name", "price", "number", "code", "kinds"
OTHERS = "half", "long", "named"

async def go_on(times):
    for _ in range(times):
        await asyncio.sleep(0)

def immortal(names):
    return {is_immortal(getattr(product, name)) for product in products for name in names}
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", PROGRAM + code], stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_small_immutable_values_are_immortal_once_a_program_is_set_up():
    assert run(
        """
async def main():
    print(json.dumps([*immortal(VALUES + OTHERS)]))
    await go_on(300)
    print(json.dumps([*immortal(VALUES)]))
    print(json.dumps([*immortal(OTHERS)]))

tornado.stm.run(main(), threads=2)
gc.collect()
assert products[3].kinds == ("product 10", int, Product.__init__, (12.5,)) and products[3].named == "10"
"""
    ) == [[False], [True], [False]]


def test_methods_and_attributes_in_c_are_immortal_too():
    """Who looks for one by its name counts a reference: two threads that do would wait for each other."""
    assert run(
        """
import datetime, re
found = [vars(datetime.date)["year"], vars(re.Pattern)["match"], vars(re.Pattern)["flags"], vars(int)["__add__"]]

async def main():
    print(json.dumps([is_immortal(each) for each in found]))
    await go_on(300)
    print(json.dumps([is_immortal(each) for each in found]))

tornado.stm.run(main(), threads=2)
"""
    ) == [[False] * 4, [True] * 4]


def test_on_one_thread_nothing_is_shared():
    assert run(
        """
async def main():
    await go_on(300)
    print(json.dumps([*immortal(VALUES)]))

tornado.stm.run(main(), threads=1)
"""
    ) == [[False]]


def test_what_it_may_cost_is_bounded():
    taken, more = run(
        """
large = ["%d" % number * 80 for number in range(200_000)]

async def main():
    await go_on(300)

tornado.stm.run(main(), threads=2)
print(json.dumps(sum(sys.getsizeof(text) for text in large if is_immortal(text))))
late = ["late %d" % number for number in range(1000)]

async def longer():
    await go_on(20_500)

tornado.stm.run(longer(), threads=2)
print(json.dumps(sum(sys.getsizeof(text) for text in large + late if is_immortal(text))))
"""
    )
    assert 24 << 20 < taken < 33 << 20
    assert more - taken < 1 << 16


def test_amid_a_collection_it_waits():
    assert run(
        """
class Ends:
    def __del__(self):
        async def main():
            await go_on(300)
            print(json.dumps([*immortal(VALUES)]))
        tornado.stm.run(main(), threads=2)

garbage = Ends(), [("one %d" % number, number * 5000) for number in range(1000)]
garbage[1].append(garbage)
del garbage
gc.collect()

async def main():
    await go_on(700)
    print(json.dumps([*immortal(VALUES)]))

tornado.stm.run(main(), threads=2)
gc.collect()
"""
    ) == [[False], [True]]


def test_without_a_loop_too():
    assert run(
        """
from tornado.stm import transaction

def work(number):
    return number

transaction.set_threads(2)  # also where there is one processor
for _ in range(300):
    transaction.add(work, 1)
transaction.run()
print(json.dumps([*immortal(VALUES)]))
"""
    ) == [[True]]
