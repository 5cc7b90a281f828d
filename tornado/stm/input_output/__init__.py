"""What stands between transactions and the outside: sockets, TLS on them, files, and what is printed.

Here belongs what puts the effects of input and output off to the commit, and gives the next attempt what an aborted one
has received: stand-ins (*twins*) for the C functions that do it, which each module lists in ``TWINS``, and for methods of
``socket.socket`` and ``ssl.SSLSocket``, which are in `patches.table`.  It knows transactions (`core`), and no loop.
"""
