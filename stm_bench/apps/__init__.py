"""Applications that the apps benchmark loads: each has a coroutine function ``serve(port, given)``.

What is given is None, or a text: the path of a certificate, or what there is to connect to.
"""
