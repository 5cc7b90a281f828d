"""Primes by trial division in generator expressions, with ``all``, ``any`` and ``sum``."""

ROUNDS = 5
LIMIT = 1500
PRIMES = 239  # below LIMIT


def primes(limit):
    """The primes below the limit, in order."""
    found = [2]
    for candidate in range(3, limit, 2):
        if all(candidate % prime for prime in found if prime * prime <= candidate):
            found.append(candidate)
    return found


def run(n):
    checksum = 0
    for _ in range(n):
        found = primes(LIMIT)
        checksum += sum(prime for prime in found if any(prime + gap in (7, 1009) for gap in (2, 4)))
        checksum += len(found)
    return checksum
