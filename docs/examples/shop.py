"""A page that looks for products, and says how often it was asked and what for: the example of docs/tutorial.rst.

    python docs/examples/shop.py 8888
"""

import asyncio
import sys

import tornado.web

COLOURS = "black blue brown green grey orange pink red white yellow".split()
THINGS = "bed bench carpet chair clock desk lamp mirror shelf stool table vase".split()
PRODUCTS = [f"{colour} {thing}" for colour in COLOURS for thing in THINGS]


def pairs(text):
    return [text[i : i + 2] for i in range(len(text) - 1)]


def search(words):
    """The five products that have most in common with the words; some milliseconds of Python."""
    wanted = pairs(words)
    ranked = []
    for _ in range(8):
        ranked = [(-sum(pair in wanted for pair in pairs(name)), name) for name in PRODUCTS]
        ranked.sort()
    return [name for _, name in ranked[:5]]


class Shop:
    """What all requests share."""

    def __init__(self):
        self.visits = 0
        self.recent = []


class Search(tornado.web.RequestHandler):
    async def get(self, words):
        shop = self.application.shop
        shop.visits += 1
        visit = shop.visits
        shop.recent.append(words)
        del shop.recent[:-10]
        found = search(words)
        self.write({"visit": visit, "found": found})


class Visits(tornado.web.RequestHandler):
    def get(self):
        self.write(str(self.application.shop.visits))


async def main(port):
    application = tornado.web.Application([(r"/search/(.+)", Search), (r"/visits", Visits)])
    application.shop = Shop()
    application.listen(port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
