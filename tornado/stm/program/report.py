"""What a run has come to: at its end, on SIGUSR2, and in a line at once where something costs much.

Figures are from the engine's counts (`transaction.stats`).  Shares of time are of that in which transactions ran, of all threads together
and without what kept others waiting, or of the processor time that the program has used, whichever is more: by the clock, since what runs
alone and waits does so for all, and takes longer, as all else does, on a machine that others use too.  What conflicts have cost is waits,
and attempts that were rolled back.
"""

import _thread
import atexit
import math
import os
import signal
import sys
import time

from .. import activation, core, forks, transaction
from ..c_functions import libraries
from ..core import trusted
from ..loop import signals

#: seconds from which on a run is told of at its end
LONG_RUN = 5.0
#: the share of time from which on a line says so at once; over so many seconds
MUCH, WINDOW = 0.2, 10.0
#: seconds after which a callback is told of, and how many places are
LONG_CALLBACK, PLACES = 2.0, 5
#: reasons in a report
REASONS = 3

#: of a function that nobody but us can declare
STANDARD = "one of the standard library's own, which runs alone: keep it out of each request (while the program starts it does not matter)"

SERIAL = "tornado.stm: transactions ran one at a time: none was alone longer than others, and none was rolled back"


class Run:
    """Of this process, from here on; of the child of a fork, from its beginning.

    Args:
        explain: name all reasons, however short the run was, and what to declare.
        child: say nothing at the exit if no transaction has run, whoever wants to be explained what.
    """

    def __init__(self, explain=False, child=False):
        self._explain, self._child = explain, child
        self._process = os.getpid()
        self._watched = None  # the process whose watch has begun
        self._begin_counting()
        forks.begin_by(self._begin_counting)

    def _begin_counting(self):
        self._begun, self._used, self._before = time.monotonic(), time.process_time(), core.stats()

    def lines(self):
        """The report, as a list of lines."""
        if not core.PARALLEL:
            return [SERIAL]
        stats = since(self._before, core.stats())
        whole = whole_of(stats, time.process_time() - self._used)
        threads = transaction.getsegmentlimit()  # the program may have said how many
        attempts = stats["commits"] + stats["aborts"]
        first = (
            f"tornado.stm: {stats['commits']} transactions on {threads} thread{'s' * (threads > 1)},"
            f" {percent(stats['aborts'], attempts)} rolled back; of the time {percent(stats['seconds_lost'], whole)} lost in conflicts,"
            f" {percent(stats['seconds_alone'], whole)} alone"
        )
        nothing = libraries.not_found() if self._explain else []
        return [
            first,
            *reasons(stats, whole, None if self._explain else REASONS, self._explain),
            *(f"  declared, but nothing in C that has been imported has this name: {name}" for name in nothing),
        ]

    @trusted
    def tell(self, *_):
        """On standard error, in one go."""
        write(self.lines())

    @trusted
    def _tell_at_exit(self):
        some = core.stats()["commits"] > self._before["commits"]
        long = some and time.monotonic() - self._begun >= LONG_RUN
        if os.getpid() == self._process and (long or self._explain and (some or not self._child)):
            self.tell()

    def begin(self):
        """Tell at the exit, and on SIGUSR2 unless the program has a handler for it; watch meanwhile."""
        atexit.register(self._tell_at_exit)
        if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
            signal.signal(signal.SIGUSR2, self.tell)
        if core.PARALLEL:
            self._watch()
            activation.at_runs.append(self._watch)  # in the child of a fork, which may start another program instead

    @trusted
    def _watch(self):
        if self._watched != os.getpid():
            self._watched = os.getpid()
            with signals.all_blocked():
                _thread.start_new_thread(Watch().watch, ())


class Watch:
    """Looks every second what costs much, and says each thing once."""

    def __init__(self):
        self._told = set()
        self._long = {}  # the seconds for which each thread's callback, that has been told of, had run at the last look
        self._before = core.stats(), time.process_time(), time.monotonic()

    @trusted
    def watch(self):
        """On a thread of its own, for ever."""
        while True:
            time.sleep(1)
            self.look()

    def look(self):
        told, self._long = self._long, {}
        for thread, seconds in core.running():
            if seconds < LONG_CALLBACK:
                continue
            goes_on = told.get(thread, math.inf) <= seconds  # elsewhere by now, perhaps
            if goes_on or len(self._told) < PLACES and (place := place_of(thread)):
                self._long[thread] = seconds
                if not goes_on:
                    self._tell(place, f"a callback has run for {LONG_CALLBACK:.0f} seconds and more: {place}")
        stats, used, now = core.stats(), time.process_time(), time.monotonic()
        before, used_before, then = self._before
        if now - then < WINDOW:
            return
        self._before = stats, used, now
        lately = since(before, stats)
        whole = max(whole_of(lately, used - used_before), 1.0)
        for name, what in ("seconds_alone", "went to what runs alone"), ("seconds_lost", "was lost in conflicts"):
            share = lately[name] / whole
            if share > MUCH:
                why = dearest(lately, 1) if name == "seconds_alone" else []
                more = f", most by {why[0]}" if why else ""
                self._tell(name, f"{percent(share, 1)} of the time {what}{more} (kill -USR2 {os.getpid()} tells more)")

    def _tell(self, what, text):
        if what not in self._told:
            self._told.add(what)
            write([f"tornado.stm: warning: {text}"])


def since(before, now):
    """What has been added to these counts; of a dict of counts only what has grown."""
    return {
        name: {of: n - before[name].get(of, 0) for of, n in count.items() if n != before[name].get(of, 0)}
        if isinstance(count, dict) else count - before[name]
        for name, count in now.items()
    }  # fmt: skip


def whole_of(stats, used):
    """The seconds that shares are of, where so many of processor time were used."""
    return max(stats["seconds_running"], used)


def percent(part, whole):
    return f"{min(100 * part / whole, 100) if whole else 0:.1f} %"


def dearest(stats, most):
    """The reasons for which most of the time was spent alone, the dearest first; all of them if `most` is None."""
    seconds = stats["exclusive_seconds"]
    return sorted(seconds, key=seconds.get, reverse=True)[:most]


def reasons(stats, whole, most, explain):
    """Lines on what ran alone, the dearest first: the share of time, how often, why and where."""
    seconds, counts = stats["exclusive_seconds"], stats["exclusive_reasons"]
    lines = []
    for reason in dearest(stats, most):
        lines.append(f"  {percent(seconds[reason], whole):>7} {counts.get(reason, 0):7} times  {reason}")
        if explain and (hint := hint_of(reason)):
            lines.append(f"{'':24}{hint}")
    return lines


def hint_of(reason):
    """What there is to know, or to do, where this is a reason for: a call of what nobody has declared, perhaps for this release; else None."""
    what, of, called = reason.partition(":")[0].partition("call of ")
    if what or not of:
        return None
    from ..c_functions import libraries

    if (other := libraries.not_for_this_release(called)) is not None:
        return other
    if called.partition(".")[0] in sys.stdlib_module_names and " " not in called:
        return STANDARD
    declaration = declaration_of(called)
    return declaration and f"if you know what its C code does: {declaration}"


def declaration_of(called):
    """What would declare a function by this name, or an object as one; None if that is no name."""
    kind, _, name = called.partition(" object ")
    if name:
        return f"tornado.stm.effects.declare({name}, EFFECT)"
    if "." not in kind or " " in kind:
        return None
    from ..c_functions import effects

    if effects.loaded(kind):
        return f"call {kind} EFFECT, in a file for --effects"
    # C code may call its type as nothing in its module is called, or as something else there is.
    owner, _, name = kind.rpartition(".")
    if owner in sys.modules:
        return f"tornado.stm.effects.declare({name}, EFFECT)"
    return f"tornado.stm.effects.declare(type(x).{name}, EFFECT), x: a {owner}"


def place_of(thread):
    """The innermost line of the program's own that this thread is at, else of a library's, as tracebacks name it; or None."""
    from ..activation import libraries_at

    frame, found = sys._current_frames().get(thread), None
    ours, others = core.FOLDER, (*libraries_at(), "<string>")
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(ours):
            place = f'File "{file}", line {frame.f_lineno}, in {frame.f_code.co_qualname}'
            if not file.startswith(others):
                return place
            found = found or place
        frame = frame.f_back
    return found


def write(lines):
    """One write, so that lines of several processes do not mix; where there is no standard error, nothing."""
    if sys.__stderr__ is None:  # a file of the program may have its number
        return
    try:
        os.write(2, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
    except OSError:
        pass
