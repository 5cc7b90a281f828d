"""A bank: threads transfer money between accounts; three ways to keep each transfer in one piece.

Each function does all `transfers`, triples (source, target, amount) with two numbers of accounts, and returns (the
money that is there afterwards, seconds).  All that such a program has to do counts: starting the threads, handing out
the transfers, waiting for the end.
"""

import random
import threading
import time

ACCOUNTS = 100
BALANCE = 1000
MONEY = ACCOUNTS * BALANCE


def make_transfers(count):
    chance = random.Random(1)
    return [(*chance.sample(range(ACCOUNTS), 2), chance.randrange(1, 100)) for _ in range(count)]


class Account:
    def __init__(self, balance):
        self.balance = balance


def transfer(accounts, source, target, amount):
    """Moves the amount if it is there; all money stays in the bank."""
    if accounts[source].balance >= amount:
        accounts[source].balance -= amount
        accounts[target].balance += amount


def with_transactions(transaction, transfers):
    """tornado.stm: `transfer` as it stands."""
    accounts = [Account(BALANCE) for _ in range(ACCOUNTS)]
    start = time.perf_counter()
    for each in transfers:
        transaction.add(transfer, accounts, *each)
    transaction.run()
    seconds = time.perf_counter() - start
    return sum(account.balance for account in accounts), seconds


def with_lock(threads, transfers):
    """One threading.Lock around `transfer`."""
    accounts = [Account(BALANCE) for _ in range(ACCOUNTS)]
    lock = threading.Lock()

    def work(share):
        for each in share:
            with lock:
                transfer(accounts, *each)

    seconds = time_threads(work, threads, transfers)
    return sum(account.balance for account in accounts), seconds


def with_atomix(threads, transfers):
    """atomix-stm: the balances are its Refs."""
    from atomix_stm import Ref, atomically

    accounts = [Ref(BALANCE) for _ in range(ACCOUNTS)]

    @atomically
    def transfer(source, target, amount):
        if accounts[source].value >= amount:
            accounts[source].alter(lambda balance: balance - amount)
            accounts[target].alter(lambda balance: balance + amount)

    def work(share):
        for each in share:
            transfer(*each)

    seconds = time_threads(work, threads, transfers)
    return sum(account.value for account in accounts), seconds


def time_threads(work, threads, transfers):
    """Seconds that so many threads take for their shares.  Raises what one of them raised."""
    failures = []

    def run(share):
        try:
            work(share)
        except Exception as error:
            failures.append(error)

    workers = [threading.Thread(target=run, args=(transfers[number::threads],)) for number in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - start
    if failures:
        raise failures[0]
    return seconds
