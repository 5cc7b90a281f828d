# Written for PyPy-STM and converted by 2to3. One line has been changed since: the import of `transaction`, which was
# `import transaction`.
"""Which texts has a word?  A loop over a dict of texts whose turns are transactions.

    python -m stm_bench.from_pypystm.words [TEXTS]

Texts have most of their words in common, so that what they write often is the same; with a plain loop in the place of
the queue the program prints the same.
"""

import sys

from tornado.stm import transaction

ENDINGS = ("ings", "ing", "ers", "er", "ed", "s")
ROOTS = ("read", "writ", "lock", "commit", "abort", "wait", "count", "mark", "turn", "load", "stor", "hold")


class Index(object):
    """The texts of each word, by its root."""

    roots = transaction.threadlocalproperty(dict)  # of the words that this thread has met

    def __init__(self):
        self.texts = transaction.stmdict()
        self.words = 0

    def add(self, name, text):
        roots = self.roots
        words = text.split()
        for word in words:
            if word not in roots:
                roots[word] = root_of(word)
            self.texts.setdefault(roots[word], transaction.stmset()).add(name)
        self.words += len(words)


def root_of(word):
    for ending in ENDINGS:
        if word.endswith(ending):
            return word[:-len(ending)]
    return word


def make_texts(n):
    """n texts by their names, always the same."""
    texts, state = {}, 1
    for i in range(n):
        words = []
        for _ in range(50 + i % 50):
            state = (state * 1103515245 + 12345) % 2 ** 31
            root = ROOTS[(state >> 16) % (1 + i % len(ROOTS))]
            words.append(root + (ENDINGS + ("",))[(state >> 8) % 7])
        texts["text %d" % i] = " ".join(words)
    return texts


def main(n):
    index = Index()
    queue = transaction.TransactionQueue()
    for name, text in make_texts(n).items():
        queue.add(index.add, name, text)
    queue.run()
    print("%d words in %d texts" % (index.words, n))
    for root, names in sorted(list(index.texts.items()), key=lambda root_names: (-len(root_names[1]), root_names[0])):
        print("%-8s in %d, the first of them %s" % (root, len(names), min(names)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
