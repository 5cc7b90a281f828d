"""The event loop: callbacks, timers and events of file descriptors as transactions, and the threads that run them.

Here belongs what an asyncio loop is made of: the loop itself (`eventloop`), its threads and what their transactions call
(`scheduler`), futures and tasks, signals, and the graceful end on SIGTERM; and what runs in its place where transactions run
one at a time (`serial_loop`).  Which transaction runs next and who polls is decided in ``../engine/dispatch/``.  It knows the
engine by `core` only.
"""
