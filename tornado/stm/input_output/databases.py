"""``sqlite3`` in transactions: what only reads may be repeated; what changes a database is irrevocable; others go on meanwhile.

All databases of the process are one object to the engine, which whoever calls a connection shares or owns.  A query shares it,
and what may change something owns it, to the end of its transaction.  So no query sees what a transaction has changed that comes
later in the order of commits, or is still about to change more, and none of this process is under way while something is changed.
What other processes change may come between two queries of one handler, as without transactions.

A query can be repeated if it changes nothing outside and nothing in the connection: a SELECT outside of the database's own
transactions, which keep what the first query of theirs has seen.  Its cursor is this transaction's own; if that is rolled back,
the cursor is closed before anybody can own the databases, since an open one would keep a connection from its changes.

Functions of the program that a connection calls run in exclusive transactions (engine/calls/connection.c sees them begin).  That
holds for those in Python; where a connection may call anything else, or converts what it reads, its calls are exclusive.

The connection is that of the loop's thread, whichever thread of the loop calls (engine/calls/connection.c).  Where its structure is
another than the expected one, nothing of this counts: calls are exclusive, and made on the loop's thread.
"""

import _thread
import builtins
import functools
import gc
import math
import os
import re
import sys
import threading
import types
import weakref

from .. import _engine, core, forks
from ..core import trusted

# A program may replace builtins; what stands in for them must not call the replacements.
__builtins__ = dict(vars(builtins))


class _Databases:
    """All that connections of this process are to, as far as the engine is concerned."""


_databases = _Databases()

# ---- What a connection may call --------------------------------------------------------------------------------------------

#: id of a connection -> its list of blobs, which no other one ever has (that of its cursors is another one after two hundred of them),
#: and: has it only the functions that any has, in Python, and of ``math``?  Those of dead connections stay until there are many.
#: Where the answer is no, nobody could find it again, so it is kept as long as the connection lives.
_known = {}
_known_lock = _thread.allocate_lock()
forks.free(_known_lock)
_MOST_KNOWN = 1000
_most_known = _MOST_KNOWN
#: the lists of blobs of connections that may load C code when a query says so
_loaders = []

#: what `gc.get_referents` gives of a connection; with more, it has callbacks that are called at each statement
_PARTS = ("type", "_lru_cache_wrapper", "list", "list", "NoneType", "type")
_CURSORS, _BLOBS, _TEXT_FACTORY = 2, 3, 5

_functions_of = """
    SELECT name, builtin, type, enc, narg, flags FROM pragma_function_list
    UNION ALL SELECT name, 0, '', '', 0, 0 FROM pragma_collation_list
"""

#: What tells SQLite's own collations from others that have been put in their places, of which the list above says nothing.
_compared = """
    UNION ALL SELECT 'comparisons', 0, ''
        || ('a' = 'A' COLLATE NOCASE) || ('Z' < 'a' COLLATE NOCASE) || ('_' < 'a' COLLATE NOCASE) || ('_' < 'A' COLLATE NOCASE)
        || (char(201) = char(233) COLLATE NOCASE) || ('a' = 'a ' COLLATE NOCASE) || ('a' || char(0) || 'b' < 'A' || char(0) || 'c' COLLATE NOCASE),
        (('a' = 'a  ' COLLATE RTRIM) || ('a' = 'A' COLLATE RTRIM)) || ('Z' < 'a' COLLATE RTRIM) || ('a' = 'a' || char(9) COLLATE RTRIM)
        || (char(201) < char(233) COLLATE RTRIM) || ('a' || char(0) || 'b' < 'a' || char(0) || 'c' COLLATE RTRIM),
        ('a' = 'A' COLLATE BINARY) || ('Z' < 'a' COLLATE BINARY) || ('_' < 'a' COLLATE BINARY) || ('a' = 'a ' COLLATE BINARY)
        || (char(201) < 'z' COLLATE BINARY) || ('a' || char(0) || 'b' < 'a' || char(0) || 'c' COLLATE BINARY), 0
"""
_usual_functions = set()


@trusted
def _calls_known(connection):
    """Does it call nothing but SQLite's own functions, the program's in Python and those of ``math``?"""
    if type(connection) is not _Connection:
        return False
    parts = gc.get_referents(connection)
    if len(parts) != len(_PARTS) or parts[_TEXT_FACTORY] is not str or _engine.connection_converts(connection):
        return False
    blobs, known = _known.get(id(connection), (None, False))
    return known if blobs is parts[_BLOBS] else _look_at(connection, parts[_CURSORS], parts[_BLOBS])


@trusted
def _look_at(connection, cursors, blobs):
    """The first look at what it has been given before anybody took note."""
    core.share(_databases)
    core.share(connection)
    for reference in list(cursors):
        _keep(reference)
    if connection.in_transaction:
        return False  # a query may take locks that last as long as that
    try:
        cursor = _call(connection, _cursor, connection)
        cursor.row_factory = None
        _call(connection, _cursor_execute, cursor, _functions_of + _compared)
        functions = set(_call(connection, _fetchall, cursor))
    except _Error:
        return False
    except Exception:  # by code that compares
        return _note(connection, blobs, False)
    return _note(connection, blobs, functions <= _usual_functions and not any(blobs is loader for loader in _loaders))


@trusted
def _note(connection, blobs, known):
    with _known_lock:
        if len(_known) >= _most_known:
            _forget()
        _known[id(connection)] = blobs, known
    return known


@trusted
def _forget():
    """Forget what is known of connections that are no more; of others a second look might find less than the first."""
    global _most_known
    of_a_dead_one = _count_references(([], False))
    for number, entry in list(_known.items()):
        if _count_references(entry) <= of_a_dead_one:
            del _known[number]
    _most_known = max(_MOST_KNOWN, 2 * len(_known))


@trusted
def _count_references(entry):
    return sys.getrefcount(entry[0])


def _noting(name, is_in_python):
    """In the place of a method that gives functions to a connection."""
    original = vars(_Connection)[name]

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        _look_out(self, is_in_python, args, kwargs)
        return original(self, *args, **kwargs)

    return method


@trusted
def _look_out(connection, is_in_python, args, kwargs):
    core.exclusive("a function for a database")
    known = is_in_python(*args, **kwargs) and _calls_known(connection)
    parts = gc.get_referents(connection)
    if not known and len(parts) >= len(_PARTS):
        _note(connection, parts[_BLOBS], False)
        if is_in_python is _is_nothing:
            _loaders.append(parts[_BLOBS])


@trusted
def _is_function(*given, **_):
    """Of what is given to the method, by position, the last is what will be called."""
    if len(given) < 2:
        return False
    kind = type(given[-1])
    return kind in (types.FunctionType, types.NoneType) or (kind is types.BuiltinFunctionType and given[-1] in _of_numbers)


#: what looks at nothing but the numbers, texts and bytes that SQLite calls it with: SQLAlchemy gives ``math.floor`` to each connection
_of_numbers = {function for function in vars(math).values() if type(function) is types.BuiltinFunctionType}


@trusted
def _is_aggregate(*given, **_):
    if len(given) < 3 or given[2] is None:
        return len(given) == 3
    usual = type(given[2]) is type and given[2].__flags__ & _HEAP_TYPE
    methods = [getattr(given[2], name, None) for name in ("step", "finalize", "value", "inverse")] if usual else [len]
    return all(type(method) in (types.FunctionType, types.NoneType) or method is list.append for method in methods)


@trusted
def _is_nothing(*_, **__):
    return False


_HEAP_TYPE = 1 << 9

#: which methods give a connection something to call, and whether that is code in Python, or known
_GIVES = {
    "create_function": _is_function,
    "create_collation": _is_function,
    "create_aggregate": _is_aggregate,
    "create_window_function": _is_aggregate,
    "enable_load_extension": _is_nothing,
    "load_extension": _is_nothing,
    "setconfig": _is_nothing,
    "deserialize": _is_nothing,
}

# ---- What a statement does ---------------------------------------------------------------------------------------------------

_COMMENTS = r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
_query = re.compile(_COMMENTS + r"(?:SELECT|VALUES|(WITH))\b", re.IGNORECASE | re.DOTALL)
_change = re.compile(r"\b(?:INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)
_queries = {}
_MOST_QUERIES = 1000


@trusted
def _only_reads(sql):
    if type(sql) is not str:
        return False
    if (known := _queries.get(sql)) is None:
        found = _query.match(sql)
        known = found is not None and not (found[1] and _change.search(sql))
        if len(_queries) >= _MOST_QUERIES:
            _queries.clear()
        _queries[sql] = known
    return known


_PLAIN = {int, float, str, bytes, bool, type(None)}


@trusted
def _are_plain(parameters):
    """Are they as SQLite takes them, so that nothing adapts them?"""
    if type(parameters) not in (tuple, list, dict):
        return False
    core.open_items(parameters)
    for value in parameters.values() if type(parameters) is dict else parameters:
        if type(value) not in _PLAIN or (_adapters and (type(value), _Protocol) in _adapters):
            return False
    return True


@trusted
def _are_plain_rows(rows):
    if type(rows) not in (tuple, list):
        return False
    core.open_items(rows)
    return all(map(_are_plain, rows))


# ---- Grades ----------------------------------------------------------------------------------------------------------------------


@trusted
def _may_change(connection, cursor=None):
    """From here on the databases are this transaction's."""
    core.irrevocable("a change of a database")
    core.own(_databases)
    core.own(connection)
    if cursor is not None:
        core.own(cursor)


@trusted
def _reads(connection):
    """Could what is done next be repeated, if it changes nothing by itself?"""
    core.share(_databases)
    core.share(connection)
    return not (core.keeps_others_waiting() or connection.in_transaction)


@trusted
def _runs_alone(why="use of sqlite3 that may call more than Python code"):
    core.exclusive(why)
    _engine.forget_past()


@trusted
def _may_be_called(connection):
    """May others run beside what is done next with it?  Not if it calls what nobody knows, and not beside a cursor that was kept."""
    if _kept and _any_is_open():
        _runs_alone("use of sqlite3 while a cursor is open since an earlier step")
    return core.is_exclusive() or _calls_known(connection)


@trusted
def _prepare(connection, cursor=None, *, repeatable=True, usual=True):
    """The transaction gets the grade for what is done next with the connection, or with a cursor of it.

    Args:
        repeatable: it changes nothing, unless the database is in the midst of a transaction.
        usual: nobody but the connection is called for it.
    """
    if core.is_exclusive():
        return
    if not (usual and _may_be_called(connection)):
        _runs_alone()
    elif not (repeatable and (cursor is None or _engine.is_captured(cursor)) and _reads(connection)):
        _may_change(connection, cursor)


@trusted
def _own(cursor):
    """It is this transaction's; if that is rolled back, the cursor does not stay open."""
    core.on_abort(_close_reader, weakref.ref(cursor))
    return _engine.capture(cursor)


@trusted
def _close_reader(reference):
    cursor = reference()
    if cursor is not None:
        try:
            _call(cursor.connection, _cursor_close, cursor)
        except _Error:
            pass  # the connection is closed


@trusted
def _run(connection, cursor, function, receiver, sql, parameters):
    _prepare(connection, cursor, repeatable=_only_reads(sql), usual=core.is_exclusive() or _are_plain(parameters))
    executed = _call(connection, function, receiver, sql, parameters)
    if core.is_exclusive():
        _keep(weakref.ref(executed))
    else:
        core.defer(_keep, weakref.ref(executed))
    return executed


#: Cursors that may be in the midst of their rows at the end of the transaction that has executed them: weak references, by their ids.
#: Who lets one go that has been kept has it closed at the commit, where upstream has it closed at once; until then it keeps other
#: connections from changes.
_kept = {}


@trusted
def _keep(reference):
    cursor = reference()
    if cursor is not None and _is_open(cursor):
        _engine.dies_anywhere(cursor)
        kept = weakref.ref(cursor, _let_go)
        _kept[id(kept)] = kept


@trusted
def _let_go(kept):
    _kept.pop(id(kept), None)


@trusted
def _is_open(cursor):
    return any(type(part).__name__ == "Statement" for part in gc.get_referents(cursor))


@trusted
def _any_is_open():
    for kept in list(_kept.values()):
        cursor = kept()
        if cursor is None or not _is_open(cursor):
            _let_go(kept)
    return bool(_kept)


# ---- Connections ---------------------------------------------------------------------------------------------------------------


def connect(*args, **kwargs):
    """Twin of ``sqlite3.connect``."""
    if args and hasattr(args[0], "__fspath__"):
        args = os.fspath(args[0]), *args[1:]
    return _open(args, kwargs)


@trusted
def _open(args, kwargs):
    if not core.is_exclusive():
        if len(args) not in (1, 2) or type(args[0]) not in (str, bytes) or kwargs.keys() - _PLAIN_OPTIONS:
            _runs_alone()
        elif args[0] == ":memory:" or os.path.exists(args[0]):
            core.share(_databases)
        else:
            core.irrevocable("a new database")
            core.own(_databases)
    made = _connect(*args, **kwargs)
    if isinstance(made, _Connection):
        _engine.connection_made(made)
    if type(made) is _Connection:
        _note(made, gc.get_referents(made)[_BLOBS], True)
        _engine.capture(made)
        core.on_abort(_close_unused, made)
    return made


@trusted
def _close_unused(connection):
    """The attempt that has made it has been rolled back: it ends as if it had not been made, and nobody is warned."""
    try:
        _call(connection, _close, connection)
    except _Error:
        pass


_PLAIN_OPTIONS = {"timeout", "detect_types", "isolation_level", "check_same_thread", "cached_statements", "autocommit"}


@trusted
def connection_cursor(self, *args, **kwargs):
    """Twin of ``Connection.cursor``."""
    if args or kwargs or not _may_be_called(self):
        _runs_alone()
        return _call(self, functools.partial(_cursor, self, *args, **kwargs))
    core.share(self)
    return _own(_call(self, _cursor, self))


@trusted
def connection_execute(self, sql, parameters=(), /):
    """Twin of ``Connection.execute``."""
    return _own(_run(self, None, _execute, self, sql, parameters))


@trusted
def connection_executemany(self, sql, parameters, /):
    """Twin of ``Connection.executemany``."""
    return _run_many(self, None, _executemany, self, sql, parameters)


@trusted
def connection_executescript(self, sql_script, /):
    """Twin of ``Connection.executescript``."""
    return _run_script(self, None, _executescript, self, sql_script)


@trusted
def _run_many(connection, cursor, function, receiver, sql, rows):
    _prepare(connection, cursor, repeatable=False, usual=core.is_exclusive() or _are_plain_rows(rows))
    return _call(connection, function, receiver, sql, rows)


@trusted
def _run_script(connection, cursor, function, receiver, script):
    _prepare(connection, cursor, repeatable=False)
    return _call(connection, function, receiver, script)


@trusted
def connection_commit(self):
    """Twin of ``Connection.commit``."""
    _prepare(self)
    return _call(self, _commit, self)


@trusted
def connection_rollback(self):
    """Twin of ``Connection.rollback``."""
    _prepare(self)
    return _call(self, _rollback, self)


@trusted
def connection_enter(self):
    """Twin of the beginning of ``with connection:``."""
    core.share(_databases)
    return _call(self, _enter, self)


@trusted
def connection_exit(self, type, value, traceback, /):
    """Twin of the end of ``with connection:``."""
    _prepare(self)
    return _call(self, _exit, self, type, value, traceback)


@trusted
def connection_close(self):
    """Twin of ``Connection.close``."""
    _prepare(self, repeatable=_engine.is_captured(self))
    return _call(self, _close, self)


# ---- Cursors -------------------------------------------------------------------------------------------------------------------


@trusted
def cursor_execute(self, sql, parameters=(), /):
    """Twin of ``Cursor.execute``."""
    return _run(self.connection, self, _cursor_execute, self, sql, parameters)


@trusted
def cursor_executemany(self, sql, seq_of_parameters, /):
    """Twin of ``Cursor.executemany``."""
    return _run_many(self.connection, self, _cursor_executemany, self, sql, seq_of_parameters)


@trusted
def cursor_executescript(self, sql_script, /):
    """Twin of ``Cursor.executescript``."""
    return _run_script(self.connection, self, _cursor_executescript, self, sql_script)


@trusted
def _will_fetch(cursor):
    _prepare(cursor.connection, cursor, usual=type(cursor) is _Cursor)


@trusted
def _makes_rows(cursor):
    """Does the program make its rows?  Then it does so between two calls of the connection, as any other code of it."""
    factory = cursor.row_factory
    return factory is not None and factory is not _Row


@trusted
def _fetch(cursor, function, *args):
    _will_fetch(cursor)
    return _call(cursor.connection, function, cursor, *args)


@trusted
def _fetch_bare(cursor):
    """The next row as a tuple, whatever the program makes of it, or None."""
    _will_fetch(cursor)
    factory, cursor.row_factory = cursor.row_factory, None
    try:
        return _call(cursor.connection, _fetchone, cursor)
    finally:
        cursor.row_factory = factory


def cursor_next(self):
    """A step of a loop over a cursor."""
    row = _fetch_bare(self) if _makes_rows(self) else _fetch(self, _fetchone)
    if row is None:
        raise StopIteration
    return self.row_factory(self, row) if _makes_rows(self) else row


def cursor_fetchone(self):
    """Twin of ``Cursor.fetchone``."""
    if not _makes_rows(self):
        return _fetch(self, _fetchone)
    row = _fetch_bare(self)
    return None if row is None else self.row_factory(self, row)


def cursor_fetchmany(self, size=None):
    """Twin of ``Cursor.fetchmany``."""
    size = self.arraysize if size is None else size
    if not _makes_rows(self):
        return _fetch(self, _fetchmany, size)
    rows = []
    while (size <= 0 or len(rows) < size) and (row := _fetch_bare(self)) is not None:
        rows.append(self.row_factory(self, row))
    return rows


def cursor_fetchall(self):
    """Twin of ``Cursor.fetchall``."""
    return cursor_fetchmany(self, 0) if _makes_rows(self) else _fetch(self, _fetchall)


@trusted
def cursor_close(self):
    """Twin of ``Cursor.close``."""
    _will_fetch(self)
    return _call(self.connection, _cursor_close, self)


# ---- From when on it counts ------------------------------------------------------------------------------------------------------

_call = _engine.connection_call


@core.once
@trusted
def begin():
    """The module has been loaded."""
    global _Connection, _Cursor, _Row, _Error, _Protocol, _adapters, _connect
    global _cursor, _execute, _executemany, _executescript, _commit, _rollback, _enter, _exit, _close
    global _fetchone, _fetchmany, _fetchall, _cursor_execute, _cursor_executemany, _cursor_executescript, _cursor_close
    module = sys.modules["_sqlite3"]
    _Connection, _Cursor, _Row, _Error, _connect = module.Connection, module.Cursor, module.Row, module.Error, module.connect
    _Protocol, _adapters = module.PrepareProtocol, module.adapters
    of_connections, of_cursors = vars(_Connection), vars(_Cursor)
    known = _learn()
    _engine.tie(_Connection)
    _engine.tie(module.Blob)
    _engine.tie(_Cursor, cursor_next if known else None)
    if not known:
        return
    _cursor, _execute, _executemany, _executescript, _commit, _rollback, _enter, _exit, _close = (
        of_connections[name] for name in (
            "cursor", "execute", "executemany", "executescript", "commit", "rollback", "__enter__", "__exit__", "close")
    )  # fmt: skip
    _fetchone, _fetchmany, _fetchall, _cursor_execute, _cursor_executemany, _cursor_executescript, _cursor_close = (
        of_cursors[name] for name in ("fetchone", "fetchmany", "fetchall", "execute", "executemany", "executescript", "close")
    )
    for kind, types_ in {"DATABASE": (_Connection, _Cursor), "RECORD": (_Row,)}.items():
        for type_ in types_:
            _engine.register_type(type_, _engine.KINDS[kind])
    twins = {
        _connect: connect, _cursor: connection_cursor, _execute: connection_execute, _executemany: connection_executemany,
        _executescript: connection_executescript, _commit: connection_commit, _rollback: connection_rollback,
        _enter: connection_enter, _exit: connection_exit, _close: connection_close,
        _fetchone: cursor_fetchone, _fetchmany: cursor_fetchmany, _fetchall: cursor_fetchall, _cursor_execute: cursor_execute,
        _cursor_executemany: cursor_executemany, _cursor_executescript: cursor_executescript, _cursor_close: cursor_close,
    }  # fmt: skip
    for function, twin in twins.items():
        _engine.register_effect(function, _engine.EFFECTS["TWIN"], twin)
    pure = of_cursors["setinputsizes"], of_cursors["setoutputsize"], _Row, vars(_Row)["keys"]
    for function in pure:
        _engine.register_effect(function, _engine.EFFECTS["PURE"])
    for name, is_in_python in _GIVES.items():
        if name in of_connections:
            _engine.set_in_type(_Connection, name, _noting(name, is_in_python))


@trusted
def _learn():
    """Is all that is relied upon as expected, in this build of the module?"""
    made = []
    mine = _connect(":memory:")
    thread = threading.Thread(
        target=lambda: made.extend((_connect(":memory:", detect_types=3, check_same_thread=False), _thread.get_ident()))
    )
    thread.start()
    thread.join()
    try:
        _usual_functions.update(mine.execute(_functions_of + _compared))
        parts = tuple(type(part).__name__ for part in gc.get_referents(mine))
        return parts == _PARTS and _engine.learn_connections(mine, *made, 3)
    except (_Error, AttributeError):
        return False
    finally:
        mine.close()
        made[0].close()
