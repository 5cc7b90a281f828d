"""Applications that the apps benchmark loads: each has a coroutine function ``serve(port, certificate)``."""
