"""What the tests of serial semantics run: state in plain attributes, dicts and lists, and steps that race on it.

Each step works between its reads and its writes, so that steps which are not isolated from each other go wrong.
"""

ACCOUNTS = 6
DEPOSIT = 1000
WORK = 4000  # rounds between a read and a write: a few hundred microseconds


def work(rounds=WORK):
    total = 0
    for i in range(rounds):
        total += i & 3
    return total


class State:
    """All that the steps share."""

    def __init__(self, tickets):
        self.count = 0
        self.accounts = {"account%d" % i: DEPOSIT for i in range(ACCOUNTS)}
        self.left = tickets
        self.buyers = []
        self.left_side = 0
        self.right_side = 0
        self.meetings = {}
        self.items = []

    def summary(self):
        return {
            "count": self.count,
            "accounts": dict(self.accounts),
            "left": self.left,
            "buyers": list(self.buyers),
            "sides": [self.left_side, self.right_side],
            "meetings": len(self.meetings),
            "items": list(self.items),
        }


def count(state):
    """Increment; return the new value."""
    value = state.count
    work()
    state.count = value + 1
    return value + 1


def transfer(state, source, target, amount):
    """Move an amount; return the sum of all accounts before, in the middle and after."""
    accounts = state.accounts
    before = sum(accounts.values())
    balance = accounts[source]
    work()
    accounts[source] = balance - amount
    middle = sum(accounts.values()) + amount
    balance = accounts[target]
    work()
    accounts[target] = balance + amount
    return [before, middle, sum(accounts.values())]


def audit(state):
    """Add up the accounts, slowly, twice."""
    sums = []
    for _ in range(2):
        total = 0
        for balance in state.accounts.values():
            total += balance
            work(WORK // 8)
        sums.append(total)
    return sums


def sell(state, buyer):
    """Sell a ticket if there is one; return its number, or 0."""
    if state.left > 0:
        work()
        state.left -= 1
        state.buyers.append(buyer)
        return len(state.buyers)
    return 0


def paired(state):
    """Increment two fields that always agree; return what both were, which is [n, n, n, n]."""
    left = state.left_side
    work(WORK // 2)
    right = state.right_side
    state.left_side = left + 1
    work(WORK // 2)
    state.right_side = right + 1
    return [left, right, state.left_side - 1, state.right_side - 1]


def append(state, item):
    """Append; return the index."""
    index = len(state.items)
    work()
    state.items.append(item)
    return index
