"""Many small transactions: what the engine benchmark runs on one and more threads.

A workload is a function ``(transaction, count)`` that adds `count` transactions to the queue of the module
tornado.stm.transaction that it is given, and returns a function for what can be checked when they have run.
"""

import random

# Independent


class Settings:
    """What all transactions read and none changes."""

    def __init__(self):
        self.tax_rates = {"food": 0.05, "book": 0.07, "other": 0.2}
        self.discounts = {"regular": 0.0, "silver": 0.02, "gold": 0.05}
        self.most_of_one = 9
        self.free_shipping = 120.0
        self.shipping = 4.9


class Basket:
    """What belongs to one customer, for whom one transaction at a time works."""

    def __init__(self, number):
        self.customer = ("regular", "silver", "gold")[number % 3]
        self.lines = {}
        self.updates = 0
        self.total = 0.0


BASKETS = 256  # far more than threads: when the queue comes back to a basket, its last transaction has long ended
ARTICLES = 12
CHANGES = 600  # with which a transaction takes about 100 microseconds


def fill(basket, settings, start):
    """Changes the quantities in a basket, line after line, then computes what it costs."""
    most = settings.most_of_one
    for step in range(CHANGES):
        article = (start + step * 7) % ARTICLES
        line = basket.lines.get(article)
        if line is None:
            kind = ("food", "book", "other")[article % 3]
            line = basket.lines[article] = {"kind": kind, "price": 1.5 + article, "quantity": 0, "sum": 0.0}
        line["quantity"] = line["quantity"] % most + 1
        line["sum"] = line["quantity"] * line["price"]
        basket.updates += 1
    total = 0.0
    for line in basket.lines.values():
        total += line["sum"] * (1 + settings.tax_rates[line["kind"]])
    total *= 1 - settings.discounts[basket.customer]
    basket.total = total if total >= settings.free_shipping else total + settings.shipping


def independent(transaction, count):
    """Each on a basket of its own, by shared settings that nobody changes."""
    settings = Settings()
    baskets = [Basket(number) for number in range(min(count, BASKETS))]
    for number in range(count):
        transaction.add(fill, baskets[number % len(baskets)], settings, number)
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
ORDERED = 3  # articles in an order
MONTHS = 12


def article_table():
    """Name of the article: (price, stock)."""
    return {article_name(number): (1.5 + number * 0.25, number % 50) for number in range(KEYS)}


def article_name(number):
    return "article-%d" % number


def quote(table, order):
    """A small request, about 15 microseconds: looks the ordered articles up and words an offer with instalments."""
    lines = []
    for item in order.split():
        name, _, quantity = item.partition("*")
        price, stock = table[name]
        debt = price * min(int(quantity), stock)
        rate = round(debt * 1.03 / MONTHS, 2)
        lines.append("%s: %.2f, or %d times %.2f" % (name, debt, MONTHS, rate))
        for month in range(MONTHS):
            debt = debt * 1.005 - rate
            lines.append("    after month %d: %.2f" % (month + 1, debt))
    return "\n".join(lines)


def restock(table, name, stock):
    """A small request that writes: sets one key, then answers like the others."""
    price, _ = table[name]
    table[name] = (price, stock)
    return quote(table, name + "*1")


def read_mostly(transaction, count):
    """Requests to one dict with 1,000 keys: 95 % look three of them up and word an offer, 5 % set one.

    The names come as text of their own, as they would from a client.
    """
    table = article_table()
    chance = random.Random(1)
    for number in range(count):
        if chance.random() < WRITES:
            transaction.add(restock, table, article_name(chance.randrange(KEYS)), number % 50)
        else:
            items = [article_name(chance.randrange(KEYS)) + "*2" for _ in range(ORDERED)]
            transaction.add(quote, table, " ".join(items))
    return lambda: len(table)


def look_up(table, name):
    return table[name]


def put(table, name, value):
    table[name] = value


def read_mostly_bare(transaction, count):
    """The same with nothing but one look-up, or one write: what is left is the queue and the engine."""
    table = article_table()
    chance = random.Random(1)
    for number in range(count):
        name = article_name(chance.randrange(KEYS))
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
