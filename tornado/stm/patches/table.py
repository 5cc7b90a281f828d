"""The table of all that is changed in other libraries, and what makes the changes.

A line is what is changed, what replaces it, and why.  The first is a module and a name in it, as in
``socket:socket.accept``.  Several modules have the same object, and get the same replacement; ``*`` is any module that has
imported it, under whatever name.  The second is a module, below `tornado.stm` or of the library itself, and a name in it;
with parentheses it is called with the original, and returns what replaces that.  What this Python or this release of a
library does not have is left out.

Each change has its moment, and whoever gets there calls `apply`:

engine      the engine is made ready for the first transaction (activation.py), where there is a compiled one
futures     the first loop is made, or `tornado.stm.install` is called (loop/futures.py), likewise
loop        a loop is made (loop/eventloop.py), where transactions run in parallel
libraries   a module that is named there has been imported, or had been when the engine is made ready
asyncpg     an extension module of this library has been loaded, or had been when the engine is made ready, and there is a file
            for its release (c_functions/libraries)
zmq         a module of this library has been loaded, likewise
PIL         likewise (Pillow)
numpy       likewise
argon2      likewise, for the releases in patches/argon2.py
bson        likewise (pymongo)
pymongo     likewise
guard       a loop begins to run that SIGTERM is to end gracefully (loop/graceful.py)
drain       SIGTERM has come, where transactions run one at a time (loop/serial_loop.py)
extensions  program/parallelism.py is imported, on a free-threaded interpreter
install     `tornado.stm.install` is called (program/runner.py)
spawn       multiprocessing.spawn is imported, after that (program/processes.py)
failure     an exception ends a program that ``python -m tornado.stm`` runs (program/tracebacks.py)

What changes no name is not here: parts of libraries that are taken in Python (program/python_parts.py), what is looked up early
(patches/cryptography.py), a hook of `tornado.autoreload` (program/restart.py), what else a `gen.coroutine` may yield (loop/yielded.py),
and what C functions are replaced by where transactions call them (`activation.TWINS`).
"""

import sys
import threading
import types
from collections import namedtuple

from .. import core, forks
from ..core import trusted

PATCHES = {
    "engine": """
        bdb:threading                  patches.threads:ForDebuggers           debuggers follow the thread that has stopped
        threading:get_ident            patches.threads:get_ident              the threads of a loop are one to the program
        threading:get_native_id        patches.threads:get_native_id          likewise
        threading:_limbo               patches.threads:Starting()             each start puts a thread into it: no conflict
        threading:Thread.start         patches.threads:starting()             a thread begins at the commit
        threading:_counter             patches.threads:Numbering()            each thread without a name gets a number
        threading:Event.set            patches.threads:for_threads_to_see()   threads look at the flag without a lock
        threading:Event.clear          patches.threads:for_threads_to_see()   likewise
        socket:socket.__init__         input_output.sockets:make_socket       a descriptor has one owner
        socket:socket.accept           input_output.sockets:accept            the next attempt gets the same connection
        socket:socket.send             input_output.sockets:send_in_order     nothing overtakes what transactions have sent
        socket:socket.sendall          input_output.sockets:sendall           likewise
        socket:socket.sendmsg          input_output.sockets:sendmsg           likewise
        socket:socket.shutdown         input_output.sockets:shutdown          likewise
        socket:socket._real_close      input_output.sockets:real_close        likewise
        ssl:SSLSocket.send             input_output.tls:after_what_waits()    likewise
        ssl:SSLSocket.write            input_output.tls:after_what_waits()    likewise
        gc,*:enable                    core:collector_enable                  garbage is collected between transactions
        gc,*:disable                   core:collector_disable                 likewise
        gc,*:isenabled                 core:collector_is_enabled              likewise
        gzip:GzipFile.__del__          patches.finalizers:quiet_gzip_file()   what is closed would run alone to do nothing
        compression._common._streams:DecompressReader.readinto  input_output.files:read_into()  a buffer in C has what is read put into its memory
        tarfile:ExFileObject.__init__  input_output.files:begin_buffer()      a buffer in C is the transaction's own
        tarfile:_FileInFile.readinto   input_output.files:read_into()         likewise, and has what is read put into its memory
        importlib.machinery:ExtensionFileLoader.exec_module  c_functions.libraries:declaring()  what its functions do is declared
        importlib.machinery:SourceFileLoader.exec_module     c_functions.libraries:declaring()  likewise, and it may be changed below
        sys:unraisablehook             patches.finalizers:quiet_hook()        an abort may stop a finalizer
        warnings:_showwarnmsg          patches.warned:shown_without_waiting()  C code holds a lock meanwhile
        warnings:_warn_unawaited_coroutine  patches.finalizers:quiet_unawaited()  an aborted attempt has made no coroutine
    """,
    "futures": """
        asyncio.futures,*:Future       loop.futures:Future                    the state of asyncio's cannot be rolled back
        asyncio.tasks,*:Task           loop.futures:Task                      likewise
        asyncio.tasks,*:all_tasks      asyncio.tasks:_py_all_tasks            the one in C knows its own tasks
        asyncio.tasks,*:eager_task_factory  loop.futures:eager_task_factory() it makes tasks in C
        asyncio.futures,*:future_add_to_awaited_by  core:future_add_to_awaited_by  the one in C knows its own futures
        asyncio.futures,*:future_discard_from_awaited_by  core:future_discard_from_awaited_by  likewise
        asyncio.tasks:_GatheringFuture      loop.futures:rebased()            it is a Future in C
        asyncio.tasks:_py_enter_task        asyncio.tasks:_c_enter_task       C code keeps the current task of a thread
        asyncio.tasks:_py_leave_task        asyncio.tasks:_c_leave_task       likewise
        asyncio.tasks:_py_swap_current_task asyncio.tasks:_c_swap_current_task  likewise
        asyncio.tasks:_py_current_task      asyncio.tasks:_c_current_task     likewise
        asyncio.tasks,*:_register_task      asyncio.tasks:_py_register_task    `all_tasks` sees those of libraries, too
        asyncio.tasks,*:_unregister_task    asyncio.tasks:_py_unregister_task  likewise
        asyncio.tasks,*:_register_eager_task    asyncio.tasks:_py_register_eager_task  likewise
        asyncio.tasks,*:_unregister_eager_task  asyncio.tasks:_py_unregister_eager_task  likewise
        asyncio.tasks:_scheduled_tasks      loop.futures:registry             each task is put into it: no conflict
        asyncio.format_helpers:extract_stack  loop.futures:extract_stack      futures in C have no frames to be shown
    """,
    "loop": """
        _signal:signal                 loop.signals:noting()                  signals with handlers wait for the commit
        _signal,*:raise_signal         loop.signals:raising()                 but for those that a transaction raises
        _signal,*:pthread_kill         loop.signals:raising()                 likewise
        posix,os:kill                  loop.signals:sending()                 likewise, if they are sent to this process
        _signal,*:set_wakeup_fd        loop.signals:waking()                  the main thread does, whose loop it is
        _posixsubprocess:fork_exec     loop.signals:starting()                a child begins with the program's mask
        subprocess:_fork_exec          loop.signals:starting()                likewise
        posix,os:execv                 loop.signals:starting()                likewise, whoever takes this one's place
        posix,os:execve                loop.signals:starting()                likewise
        posix,os:fork                  loop.signals:starting()                likewise
        posix,os:forkpty               loop.signals:starting()                likewise
        posix,os:posix_spawn           loop.signals:starting()                likewise
        posix,os:posix_spawnp          loop.signals:starting()                likewise
        posix,os:system                loop.signals:starting()                likewise
        os:supports_fd                 loop.signals:with_execve()             os.execve takes descriptors
        concurrent.futures.thread:ThreadPoolExecutor._counter  patches.threads:Numbering()  each one without a name gets a number
        concurrent.futures.thread:_WorkItem.__init__  patches.threads:awaited()  the thread that has done it tells of it
        asyncio.selector_events:_SelectorTransport.__del__  patches.finalizers:quiet_transport()  a closed one's would run alone
        asyncio.base_subprocess:BaseSubprocessTransport._connect_pipes  loop.subprocesses:connecting()  the protocol is told in asyncio's order
        asyncio.base_subprocess:BaseSubprocessTransport._call  loop.subprocesses:telling()  likewise
    """,
    "libraries": """
        aiohttp.web_protocol:RequestHandler._handle_request  patches.libraries:begun_anew()  it counts requests
        aiohttp.client:ClientSession._request  patches.libraries:given_back()  it may have given its connection back
        aiohttp.streams:StreamReader.read       patches.libraries:gives_way()  it tells the parser, in C, to go on
        aiohttp.streams:StreamReader.readany    patches.libraries:gives_way()  likewise
        aiohttp.streams:StreamReader.readchunk  patches.libraries:gives_way()  likewise
        aiohttp.streams:StreamReader.readexactly  patches.libraries:gives_way()  likewise
        aiohttp.streams:StreamReader.readuntil  patches.libraries:gives_way()  likewise
        grpclib.server:Stream.recv_message  patches.libraries:given_back()     it has counted for the connection
        grpclib.client:Stream.recv_message  patches.libraries:given_back()     likewise
        httpx._client:AsyncClient.send  patches.libraries:given_back()         likewise
        httpcore._utils,*:is_socket_readable  input_output.sockets:asking_beside_others()  it would run alone
        psycopg.connection_async:AsyncConnection.wait  patches.libraries:gives_way()  what comes after it need not run alone
        psycopg.cursor_async:AsyncCursor.fetchone  patches.libraries:gives_way()  likewise
        psycopg.cursor_async:AsyncCursor.fetchmany  patches.libraries:gives_way()  likewise
        psycopg.cursor_async:AsyncCursor.fetchall  patches.libraries:gives_way()  likewise
        sqlalchemy.util.concurrency,*:greenlet_spawn  patches.libraries:gives_way()  likewise
        sqlalchemy.util.concurrency:_concurrency_shim_cls._initialize  patches.fibers:initializing()  greenlets are tied to a thread
        sqlalchemy.util._concurrency_py3k:_AsyncIoGreenlet  patches.fibers:Fiber  likewise
        sqlalchemy.util._concurrency_py3k:getcurrent  patches.fibers:current   likewise
        psycopg_pool.pool_async:AsyncConnectionPool.connection  patches.libraries:lent()  all who need a connection look there
        redis.asyncio.client:Redis.execute_command  patches.libraries:given_back()  likewise
        redis.asyncio.client:Pipeline.execute  patches.libraries:given_back()  likewise
        psycopg.pq.pq_ctypes:string_at  patches.libraries:string_at  what it reads is a result, which never changes
        bson.objectid:ObjectId.__init__  patches.bson:numbered()               each new one takes a number of the class
        bson.objectid:ObjectId._inc_lock  patches.bson:no_lock                 likewise: C code that encodes one looks at its class
        fastapi.routing:_extract_endpoint_context  patches.libraries:copied()  each request writes into what it returns
        litestar.routes.http:HTTPRoute._call_handler_function  patches.libraries:turns_taken()  beside it msgspec's runs alone
        multidict._multidict_py:_version    patches.libraries:numbers         each dict takes numbers: no conflict
        multidict._multidict_py:_VERSION_LOCK  patches.libraries:no_lock      and needs no lock for that
        tornado.iostream:BaseIOStream._read_to_buffer  patches.libraries:not_set_to_zero()  64 kB for each read
        tornado.web:StaticFileHandler._get_cached_version  patches.libraries:versions_left_in_place()  each page that names a file moves it
        tornado.websocket:WebSocketProtocol13.write_message    patches.libraries:waits_at_once()  what is written is not waited for
        tornado.websocket:WebSocketProtocol13._handle_message  patches.libraries:messages_begun_anew()  senders meet it
    """,
    "asyncpg": """
        asyncpg.protocol.protocol:Protocol.__init__  patches.asyncpg:make_protocol()  C code meets what has barriers
        asyncpg.protocol.protocol:Protocol.get_settings  patches.asyncpg:get_settings()  likewise
        asyncpg.protocol.protocol:Protocol.bind_execute  patches.asyncpg:operation_with_arguments()  an operation is irrevocable
        asyncpg.protocol.protocol:Protocol.bind_execute_many  patches.asyncpg:operation_with_many_arguments()  likewise
        asyncpg.protocol.protocol:Protocol.bind      patches.asyncpg:operation_with_arguments()  likewise
        asyncpg.protocol.protocol:Protocol.execute   patches.asyncpg:operation()  likewise
        asyncpg.protocol.protocol:Protocol.prepare   patches.asyncpg:operation()  likewise
        asyncpg.protocol.protocol:Protocol.query     patches.asyncpg:operation()  likewise
        asyncpg.protocol.protocol:Protocol.close_portal     patches.asyncpg:operation()  likewise
        asyncpg.protocol.protocol:Protocol.close_statement  patches.asyncpg:operation()  likewise
    """,
    "PIL": """
        PIL._imaging:map_buffer  patches.pillow:of_buffer()  the memory of an image may be somebody else's
        PIL.ImageFont:FreeTypeFont.getmask2  patches.pillow:in_its_colours()  a font remembers the colour of the text
    """,
    "numpy": """
        numpy._core._ufunc_config:_make_extobj  patches.numpy:calls_python()  C code may call C code, without barriers
        numpy.random._generator,*:default_rng  patches.numpy:made_anew()  it makes a generator, or takes one that others have
    """,
    "argon2": """
        argon2.low_level,*:hash_secret      patches.argon2:of_values()         it works on memory that nobody else has
        argon2.low_level,*:hash_secret_raw  patches.argon2:of_values()         likewise
        argon2.low_level,*:verify_secret    patches.argon2:of_values()         likewise
        argon2.low_level,*:error_to_str     patches.argon2:of_values()         likewise
    """,
    "bson": """
        bson,*:_dict_to_bson           patches.bson:encoding()                C code calls what its options name
        bson,*:_bson_to_dict           patches.bson:decoding()                likewise
        bson,*:_decode_all             patches.bson:decoding()                likewise
    """,
    "pymongo": """
        pymongo.message:_op_msg_uncompressed  patches.bson:message()          likewise
        pymongo.message:_batched_op_msg       patches.bson:batch()            likewise
        pymongo.message:_encode_batched_op_msg  patches.bson:batch()          likewise
    """,
    "zmq": """
        zmq.sugar.socket:Socket.closed  patches.zmq:at_its_turn()  another socket may be the same one to libzmq
    """,
    "guard": """
        threading:_shutdown            loop.graceful:limited_wait()           the program's threads may not end
    """,
    "drain": """
        tornado.http1connection:HTTP1Connection._can_keep_alive  loop.serial_loop:keep_none_alive  no request follows
    """,
    "extensions": """
        importlib.machinery:ExtensionFileLoader.create_module  program.parallelism:watched()  who switches the GIL on?
        importlib.machinery:ExtensionFileLoader.exec_module    program.parallelism:watched()  likewise
    """,
    "install": """
        asyncio,asyncio.unix_events:SelectorEventLoop  program.runner:named_loop()  programs name the class
        asyncio,asyncio.unix_events:EventLoop          program.runner:named_loop()  likewise
        asyncio.unix_events:_UnixDefaultEventLoopPolicy._loop_factory  program.runner:loop_factory()  all others ask it
    """,
    "spawn": """
        multiprocessing.spawn:get_preparation_data  program.processes:with_options()  processes that are started begin likewise
    """,
    "failure": """
        sys:excepthook                 program.tracebacks:programs_own()      frames of this package are not the program's
    """,
}

Patch = namedtuple("Patch", "modules path replacement makes why")


def patches(moment):
    """The lines of a moment: modules, what is changed in each, what replaces it, or makes what does (`makes`), and why."""
    for line in filter(None, map(str.strip, PATCHES[moment].splitlines())):
        target, replacement, why = line.split(None, 2)
        modules, path = target.split(":")
        modules = tuple(modules.split(","))
        yield Patch(modules, path, replacement.removesuffix("()"), replacement.endswith("()"), why)


_applied = set()
_lock = threading.RLock()
forks.free(_lock)


@trusted
def apply(moment, *arguments):
    """Make the changes of this moment that have not been made yet, but to what is not there: libraries may be imported later.

    Args:
        arguments: given to what makes the replacements, after the original.  With any, changes are made again.
    """
    todo = [patch for patch in patches(moment) if patch not in _applied or arguments]
    if not todo:
        return
    core.exclusive("a change of a library")
    with _lock:
        everywhere = {}
        for patch in todo:
            if patch.modules[0] not in sys.modules or (patch in _applied and not arguments):
                continue
            *path, name = patch.path.split(".")
            holders = [_at(sys.modules[module], path) for module in patch.modules if module != "*"]
            original = getattr(holders[0], name, None)
            if None in holders or original is None:
                continue
            _applied.add(patch)
            new = _replacement(patch)
            if patch.makes:
                new = new(original, *arguments)
            if type(new) is types.FunctionType and new.__module__.startswith(_PACKAGE):
                _pass_for(new, original)
            for holder in holders:
                setattr(holder, name, new)
            if "*" in patch.modules:
                everywhere[id(original)] = new
        if everywhere:
            _replace_everywhere(everywhere)


def _pass_for(new, original):
    """Give a function the names of what it replaces: programs pickle functions by them, and ask which ones are a module's."""
    for name in "__module__", "__name__", "__qualname__", "__doc__":
        if isinstance(value := getattr(original, name, None), str):
            setattr(new, name, value)


def _at(module, path):
    for name in path:
        module = getattr(module, name, None)
    return module


def _replacement(patch):
    """What the table names; whoever calls `apply` has imported it."""
    module, name = patch.replacement.split(":")
    ours = f"{_PACKAGE}.{module}"
    return getattr(sys.modules[ours if ours in sys.modules else module], name)


_PACKAGE = __package__.rpartition(".")[0]


def _replace_everywhere(replacements):
    """In all modules and the tuples that they have, as `tornado.concurrent.FUTURES`: objects by the ids of the old ones.

    A function of C code stays where it is of, and what is declared of it with it.
    """
    for module in list(sys.modules.values()):
        namespace = getattr(module, "__dict__", None)
        if namespace is None or module is sys.modules.get("_asyncio"):
            continue
        for name, value in list(namespace.items()):
            if id(value) in replacements and not name.startswith(_IN_C) and getattr(value, "__self__", None) is not module:
                setattr(module, name, replacements[id(value)])
            elif type(value) is tuple and any(id(item) in replacements for item in value):
                setattr(module, name, tuple(replacements.get(id(item), item) for item in value))


#: how the names begin by which asyncio keeps what it has in C
_IN_C = "_C", "_c_"
