"""Starting and ending programs on the transactional loop.

Here belongs what ``tornado.stm.run``, ``install`` and ``python -m tornado.stm`` do around a program: choose a loop for this
interpreter and its number of threads, say why it is one, start the program again for ``tornado.autoreload`` and its processes for
``multiprocessing``, and show the traceback that it would have shown without them.
"""
