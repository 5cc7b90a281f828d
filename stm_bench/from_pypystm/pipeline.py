# Written for PyPy-STM and converted by 2to3. One line has been changed since: the import of `transaction`, which was
# `import transaction`.
"""The longest Collatz sequence: transactions produce numbers, threads consume them.

    python -m stm_bench.from_pypystm.pipeline [NUMBERS [THREADS]]
"""

import sys
import threading

from tornado.stm import transaction


class Worker(threading.Thread):
    """Takes numbers from one queue and puts (length of the sequence, number) into another, until it gets None."""

    def __init__(self, numbers, lengths):
        threading.Thread.__init__(self)
        self.numbers = numbers
        self.lengths = lengths

    def run(self):
        while True:
            n = self.numbers.get()
            if n is None:
                return
            self.lengths.put((sequence_length(n), n))
            self.numbers.task_done()


def sequence_length(n):
    length = 1
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        length += 1
    return length


def produce(numbers, first, last):
    """Each ten numbers are a transaction."""
    for n in range(first, last):
        numbers.put(n)
        if n % 10 == 9:
            yield


def drain(queue):
    while True:
        try:
            yield queue.get(block=False)
        except transaction.Empty:
            return


def main(n, threads):
    numbers, lengths = transaction.queue(), transaction.queue()
    workers = [Worker(numbers, lengths) for _ in range(threads)]
    for worker in workers:
        worker.start()
    producers = transaction.TransactionQueue()
    for first in range(1, n + 1, 100):
        producers.add_generator(produce(numbers, first, min(first + 100, n + 1)))
    producers.run()
    numbers.join()
    for worker in workers:
        numbers.put(None)
    for worker in workers:
        worker.join()
    results = list(drain(lengths))
    print("%d numbers, %d different" % (len(results), len(set(number for length, number in results))))
    length, number = max(results)
    print("the longest sequence: %d numbers from %d" % (length, number))


if __name__ == "__main__":
    arguments = list(map(int, sys.argv[1:]))
    main(*(arguments + [1000, 4][len(arguments):]))
