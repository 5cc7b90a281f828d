"""What stands between transactions and the outside: sockets, TLS on them, files, and what is printed.

Here belongs what puts the effects of input and output off to the commit, and gives the next attempt what an aborted one has
received: stand-ins (*twins*) for the C functions that do it, by which a call barrier replaces them, and for methods of
``socket.socket`` and ``ssl.SSLSocket``.  Each module lists its own in ``TWINS``.  It knows transactions (`core`), and no loop.
"""
