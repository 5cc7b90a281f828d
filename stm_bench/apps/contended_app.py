"""Tornado: a search page whose requests are in each other's way, and three changes that end that.

``GET /N/WORDS`` ranks products by how much their names are like the words, after the first N changes.  The walk through it is
docs/contention.rst.
"""

# An application has what it is given.
# pyright: reportAttributeAccessIssue=false

import asyncio

import tornado.httpserver
import tornado.web

ADJECTIVES = "small large green red round square old new plain painted".split()
MATERIALS = "oak steel".split()
NOUNS = "chair table lamp shelf bed desk stool mirror carpet clock vase bench".split()
PRODUCTS = ["%s %s %s" % (adjective, material, noun) for adjective in ADJECTIVES for material in MATERIALS for noun in NOUNS]
OFFERS = ["garden chair", "desk lamp", "bed", "carpet"]


def distance(one, other):
    """How many letters have to be inserted, deleted or replaced (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def search(words):
    """The five names that are most like the words."""
    ranked = [(distance(words, name), name) for name in PRODUCTS]
    ranked.sort()
    return [name for _, name in ranked[:5]]


class Shop:
    """What all requests share."""

    def __init__(self):
        self.visits = 0
        self.recent = []
        self.offers = list(OFFERS)

    def remember(self, words):
        """What others have looked for; from now on also this."""
        others = ", ".join(self.recent)
        self.recent.append(words)
        del self.recent[:-10]
        return others

    def next_offer(self):
        """Each in its turn."""
        offer = self.offers.pop(0)
        self.offers.append(offer)
        return offer


# [contended]
class Contended(tornado.web.RequestHandler):
    async def get(self, words):
        shop = self.application.shop
        shop.visits += 1
        found = search(words)
        others = shop.remember(words)
        similar = search(found[0])
        offered = search(shop.next_offer())
        self.write({"found": found, "similar": similar, "offered": offered, "others": others})
# [end]


class CountFirst(tornado.web.RequestHandler):
    """1. What is counted is counted in a step of its own."""

    async def get(self, words):
        shop = self.application.shop
        shop.visits += 1
        await asyncio.sleep(0)
        found = search(words)
        others = shop.remember(words)
        similar = search(found[0])
        offered = search(shop.next_offer())
        self.write({"found": found, "similar": similar, "offered": offered, "others": others})


class RememberLast(tornado.web.RequestHandler):
    """2. What is read of other requests, and changed for them, waits until the end."""

    async def get(self, words):
        shop = self.application.shop
        shop.visits += 1
        await asyncio.sleep(0)
        found = search(words)
        similar = search(found[0])
        offered = search(shop.next_offer())
        others = shop.remember(words)
        self.write({"found": found, "similar": similar, "offered": offered, "others": others})


class OfferByNumber(tornado.web.RequestHandler):
    """3. What is counted anyway tells whose turn it is."""

    async def get(self, words):
        shop = self.application.shop
        shop.visits += 1
        turn = shop.visits
        await asyncio.sleep(0)
        found = search(words)
        similar = search(found[0])
        offered = search(OFFERS[turn % len(OFFERS)])
        others = shop.remember(words)
        self.write({"found": found, "similar": similar, "offered": offered, "others": others})


CHANGES = [Contended, CountFirst, RememberLast, OfferByNumber]


class Visits(tornado.web.RequestHandler):
    """How many there have been."""

    def get(self):
        self.write(str(self.application.shop.visits))


async def serve(port, given):
    app = tornado.web.Application([(r"/%d/(.+)" % n, change) for n, change in enumerate(CHANGES)] + [(r"/visits", Visits)])
    app.shop = Shop()
    tornado.httpserver.HTTPServer(app).listen(port)
    await asyncio.Event().wait()
