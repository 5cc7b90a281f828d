"""docs/tutorial.rst, word by word: its commands are run on its example, and what the text promises is what comes of them."""

import re

import pytest

from tornado.stm import core
from tutorial import AFTER, ASK, BEFORE, COMMANDS, LOAD, READ, SERVE, SOURCE, TEXT, check_first, cost_of_handler, follow, needs_siege

pytestmark = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time: nothing conflicts")


def test_these_are_all_commands():
    assert sorted(COMMANDS) == sorted([SERVE, LOAD, ASK, READ])


def test_the_handler_is_that_of_the_example():
    assert f"\n\n{BEFORE}\n\n" in SOURCE
    assert [line for line in AFTER.splitlines() if line not in BEFORE.splitlines()] == ["        await asyncio.sleep(0)"]


def test_the_places_in_the_log_are_those_of_the_example():
    places = re.findall(r'shop\.py", line (\d+), in \S+\n\s+(.+)', TEXT)
    assert places
    for number, line in places:
        assert SOURCE.splitlines()[int(number) - 1].strip() == line
    (defined,) = re.findall(r"lost by Search\.get \(shop\.py:(\d+)\)", TEXT)
    assert "def get(self, words)" in SOURCE.splitlines()[int(defined) - 1]


@needs_siege
def test_the_log_tells_of_the_contention_and_the_change_ends_it(tmp_path):
    counted, visits, report, data = follow(tmp_path, SOURCE)
    assert visits >= counted > 0
    check_first(report, data)

    counted, visits, changed, _ = follow(tmp_path, SOURCE.replace(BEFORE, AFTER))
    assert visits >= counted > 0
    assert cost_of_handler(changed) < cost_of_handler(report) / 4
