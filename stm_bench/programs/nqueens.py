"""N queens: every way to place eight queens so that none attacks another, found by backtracking generators."""

ROUNDS = 8

SIZE = 8
SOLUTIONS = 92


def placements(size, columns=(), rising=frozenset(), falling=frozenset()):
    """Yields tuples: the column of the queen of each row."""
    row = len(columns)
    if row == size:
        yield columns
        return
    for column in range(size):
        if column not in columns and row + column not in rising and row - column not in falling:
            yield from placements(size, (*columns, column), rising | {row + column}, falling | {row - column})


def run(n):
    checksum = 0
    for _ in range(n):
        for solution in placements(SIZE):
            checksum += sum((row + 1) * column for row, column in enumerate(solution))
    return checksum
