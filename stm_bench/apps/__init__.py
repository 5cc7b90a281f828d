"""Applications that the apps benchmark loads: each has ``serve(port, certificate)``, a coroutine function, and knows no STM."""
