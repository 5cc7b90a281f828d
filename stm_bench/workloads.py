"""Many small transactions: what the engine benchmark runs on one and more threads.

A workload is a function ``(transaction, count)`` that adds `count` transactions to the queue of the module
tornado.stm.transaction that it is given, and returns a function for what can be checked when they have run.
"""

import random

# Independent


class Settings:
    """What all transactions read."""

    def __init__(self):
        self.prices = {"article-%d" % number: 1.5 + number * 0.25 for number in range(40)}
        self.discounts = {"regular": 0.0, "silver": 0.02, "gold": 0.05}
        self.most_of_one = 9
        self.free_shipping = 120.0
        self.shipping = 4.9


class Basket:
    """What one transaction at a time works on."""

    def __init__(self, number):
        self.customer = ("regular", "silver", "gold")[number % 3]
        self.lines = {}
        self.updates = 0
        self.total = 0.0


SETTINGS = Settings()
STEPS = 460  # of one transaction: about 100 microseconds
ARTICLES = list(SETTINGS.prices)


def fill(basket, start):
    """Attributes and dicts: puts articles into a basket and computes what they cost."""
    for step in range(STEPS):
        article = ARTICLES[(start + step * 7) % len(ARTICLES)]
        line = basket.lines.get(article)
        if line is None:
            line = basket.lines[article] = {"article": article, "quantity": 0, "price": 0.0}
        line["quantity"] = min(line["quantity"] + 1 + step % 2, SETTINGS.most_of_one)
        line["price"] = line["quantity"] * SETTINGS.prices[article]
        basket.updates += 1
    net = 0.0
    for line in basket.lines.values():
        net += line["price"]
    net *= 1 - SETTINGS.discounts[basket.customer]
    basket.total = net if net >= SETTINGS.free_shipping else net + SETTINGS.shipping


BASKETS = 256  # far more than threads: when the queue comes back to a basket, its last transaction has long ended


def independent(transaction, count):
    """Each on a basket of its own, by shared settings that nobody changes."""
    baskets = [Basket(number) for number in range(min(count, BASKETS))]
    for number in range(count):
        transaction.add(fill, baskets[number % len(baskets)], number)
    return lambda: sum(basket.updates for basket in baskets)


# One counter


class Counter:
    def __init__(self):
        self.value = 0


def increment(counter):
    counter.value += 1


def counter(transaction, count):
    """All increment one attribute."""
    shared = Counter()
    for _ in range(count):
        transaction.add(increment, shared)
    return lambda: shared.value


# Read mostly

KEYS = 1000
WRITES = 0.05  # the share of transactions that write
LOOKED_UP = 20  # keys in one transaction: a page of articles


def article_table():
    return {"article-%d" % number: (1.5 + number * 0.25, number % 50) for number in range(KEYS)}


def quote(table, names):
    """A small piece of a request: looks up a page of articles and words an offer, under 10 microseconds."""
    total = 0.0
    words = []
    for position, name in enumerate(names):
        price, stock = table[name]
        if stock:
            price *= 1 - 0.01 * position
            total += price
            words.append("%s: %.2f" % (name, price))
        else:
            words.append("%s is sold out" % name)
    words.append("together %.2f" % total)
    return "; ".join(words)


def restock(table, name, stock):
    """The write: one key gets a new value, after the same kind of work."""
    price, _ = table[name]
    table[name] = (round(price * 1.001, 4), stock)
    return quote(table, [name])


def read_mostly(transaction, count):
    """95 % look up 20 of the 1,000 keys of one dict and word an offer, 5 % set one key."""
    table = article_table()
    names = list(table)
    chance = random.Random(1)
    for number in range(count):
        if chance.random() < WRITES:
            transaction.add(restock, table, chance.choice(names), number % 50)
        else:
            transaction.add(quote, table, chance.choices(names, k=LOOKED_UP))
    return lambda: len(table)


def look_up(table, name):
    return table[name]


def put(table, name, value):
    table[name] = value


def read_mostly_bare(transaction, count):
    """The same with nothing but one look-up, or one write: what is left is the queue and the engine."""
    table = article_table()
    names = list(table)
    chance = random.Random(1)
    for number in range(count):
        name = chance.choice(names)
        if chance.random() < WRITES:
            transaction.add(put, table, name, number)
        else:
            transaction.add(look_up, table, name)
    return lambda: len(table)


WORKLOADS = {
    "independent": independent,
    "counter": counter,
    "read-mostly": read_mostly,
    "read-mostly, bare": read_mostly_bare,
}
