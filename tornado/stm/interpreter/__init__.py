"""The engine with an evaluation loop of its own: CPython's, with barriers inside its instructions.  Made at build time, not installed."""
