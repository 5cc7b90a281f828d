"""Warnings that C code gives in transactions are shown once, and keep nobody waiting."""

import subprocess
import sys

import pytest

from interpreters import ROOT
from tornado.stm import core

pytestmark = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")


def run(code, *arguments):
    """What the program prints, and what it says of errors.  Its function warns() calls C code that gives a warning."""
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", COMMON + code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


COMMON = """
import contextlib, datetime, io, logging, sys, threading, time, warnings
from tornado.stm import activation, core
from tornado.stm.core import trusted
activation.activate()

def warns():
    datetime.datetime.utcnow()

@trusted
def is_alone():
    return core.is_exclusive()

@trusted
def roll_back():
    raise core.Abort
"""

WAITING = """
shared, events = [], []

def show(message, *where):
    wait_for("owned", "shown")
    shared.append("shown")

@trusted
def wait_for(what, instead):
    events.append(instead)
    give_up = time.monotonic() + 1
    while what not in events and time.monotonic() < give_up:
        time.sleep(0.001)

def owns():
    shared.append("owned")
    wait_for("shown", "owned")
    warns()

warnings.showwarning = show
warnings.simplefilter("always")
threads = [threading.Thread(target=core.Transaction(function, ()).run, daemon=True) for function in (owns, warns)[::int(sys.argv[1])]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
print(sorted(shared), [thread.is_alive() for thread in threads])
"""


@pytest.mark.parametrize("order", ["1", "-1"])
def test_who_shows_a_warning_and_who_is_about_to_give_one_do_not_wait_for_each_other(order):
    assert run(WAITING, order) == ("['owned', 'shown', 'shown'] [False, False]\n", "")


PRINTED = """
def warn_and_look():
    first = core.rehearse()
    warns()
    if first:
        roll_back()
    return is_alone()

if sys.argv[1] == "logged":
    logging.basicConfig(format="%(message)s")
    logging.captureWarnings(True)
print([core.Transaction(warn_and_look, ()).run() for _ in range(2)])
"""


IN_ORDER = """
barrier = threading.Barrier(2)

def warn_twice(n):
    warnings.warn(f"{n} first")
    warnings.warn(f"{n} second")

def work():
    for n in range(200):
        barrier.wait()
        core.Transaction(warn_twice, (n,)).run()

core.inject_aborts(float(sys.argv[1]), 7)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("aborts", ["0", "0.02"])
def test_what_another_transaction_has_warned_of_and_not_yet_shown_is_not_passed_over(aborts):
    out, err = run(IN_ORDER, aborts)
    shown = [line.partition("UserWarning: ")[2] for line in err.splitlines() if "UserWarning" in line]
    assert [out, *shown] == ["", *(f"{n} {which}" for n in range(200) for which in ("first", "second"))]


OLD = """
class Old(DeprecationWarning):
    pass

def warns():
    old()

def old():
    warnings.warn("this is deprecated", Old, stacklevel=2, source=[])
"""


MADE = """
class Old(DeprecationWarning):
    pass

def warns():
    warnings.warn(made)

made = Old("made before")
"""


@pytest.mark.parametrize("how", ["printed", "logged"])
@pytest.mark.parametrize("code, warning", [
    (PRINTED, "DeprecationWarning: datetime.datetime.utcnow() is deprecated"), (OLD + PRINTED, "Old: this is deprecated"),
    (MADE + PRINTED, "Old: made before"),
], ids=["C code", "the program", "an instance"])  # fmt: skip
def test_a_warning_of_an_attempt_that_was_rolled_back_is_put_out_by_the_next_one(how, code, warning):
    out, err = run(code, how)
    assert out == "[False, False]\n" and err.count(warning) == 1


RAISED = """
made = UserWarning("made before")

def raises():
    first = core.rehearse()
    before = made.__traceback__, made.args
    try:
        warnings.warn(made)
    except UserWarning as e:
        if first:
            e.args = ("other",)
            roll_back()
        return e is made, before, is_alone()

warnings.simplefilter("error")
print(core.Transaction(raises, ()).run())
"""


def test_a_warning_that_is_raised_and_rolled_back_is_what_it_was():
    assert run(RAISED) == ("(True, (None, ('made before',)), False)\n", "")


SHARED = """
made = UserWarning("0")
barrier = threading.Barrier(2)

def warn(n):
    made.args = (f"{n} {made.args[0].split()[0]}",)
    warnings.warn(made)
    warnings.warn(UserWarning(made.args[0] + " again"))

def work():
    for n in range(100):
        barrier.wait()
        core.Transaction(warn, (n,)).run()

core.inject_aborts(0.02, 7)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_a_warning_that_two_change_and_give_is_shown_as_it_was_when_it_was_given():
    out, err = run(SHARED)
    shown = [line.partition("UserWarning: ")[2] for line in err.splitlines() if "UserWarning" in line]
    texts, last = [], "0"
    for n in range(100):
        for _ in range(2):
            texts.append(f"{n} {last}")
            last = f"{n}"
    expected = [line for text in dict.fromkeys(texts) for line in (text, f"{text} again")]
    assert (out, shown) == ("", expected)


ODD = """
class Odd(UserWarning):
    def __init__(self, text):
        super().__init__(text + "!")

def warns():
    warnings.warn(*{"made by the program": ("a", Odd), "a warning": (Odd("a"),), "a keyword": ("a",)}[sys.argv[1]], **keywords)
    return is_alone()

keywords = {"skip_file_prefixes": ()} if sys.argv[1] == "a keyword" else {}
print(core.Transaction(warns, ()).run())
"""


@pytest.mark.parametrize("what", ["made by the program", "a warning", "a keyword"])
def test_a_warning_that_may_run_code_of_the_program_is_given_alone(what):
    out, err = run(ODD, what)
    assert out == "True\n" and err.count(": a") == 1


def test_what_is_ignored_or_an_error_need_not_run_alone():
    out, err = run(OLD + """
def ignored():
    old()
    return is_alone()

def error():
    try:
        warnings.warn("an error", category=RuntimeWarning)
    except RuntimeWarning as e:
        return e.args, is_alone()

warnings.simplefilter("ignore", Old)
warnings.simplefilter("error", RuntimeWarning)
print(core.Transaction(ignored, ()).run(), core.Transaction(error, ()).run())
""")
    assert (out, err) == ("False (('an error',), False)\n", "")


SEEN = """
def function():
    warns()
    return got[:], is_alone()

def recorded():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warns()
    return len(seen), is_alone()

def redirected():
    with contextlib.redirect_stderr(io.StringIO()) as stream:
        warns()
    return "utcnow" in stream.getvalue(), is_alone()

got = []
if sys.argv[1] == "function":
    warnings.showwarning = lambda message, *where: got.append(len(where))
print(core.Transaction(globals()[sys.argv[1]], ()).run())
"""


@pytest.mark.parametrize("how, seen", [("function", "[5]"), ("recorded", "1"), ("redirected", "True")])
def test_a_warning_that_the_program_sees_is_there_at_once(how, seen):
    assert run(SEEN, how) == (f"({seen}, True)\n", "")


LEFT_OPEN = """
def show(message, *where):
    shown.append(message.args)

def leaves_open():
    for _ in range(10):
        open(__file__, "rb").read()

def leave_open():
    for _ in range(20):
        core.Transaction(leaves_open, ()).run()

shown = []
if sys.argv[2] == "function":
    warnings.showwarning = show
__file__ = sys.argv[1]
warnings.simplefilter("always")
threads = [threading.Thread(target=leave_open, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
print(len(shown), [thread.is_alive() for thread in threads])
"""


@pytest.mark.parametrize("how, shown, printed", [("printed", 0, 400), ("function", 400, 0)])
def test_files_that_are_left_open_on_two_threads_are_warned_of_after_their_transactions(how, shown, printed):
    out, err = run(LEFT_OPEN, __file__, how)
    assert out == f"{shown} [False, False]\n" and err.count("ResourceWarning: unclosed file") == printed
