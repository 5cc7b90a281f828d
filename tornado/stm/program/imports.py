"""What is done when a module has been imported.  Imports nothing of asyncio, nor what takes long."""

import importlib.machinery
import sys


def when_imported(name, action):
    """Call `action` once the module has been imported, now if it has been; once for each name."""
    if name in sys.modules:
        action()
    elif not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, action))


class _Finder:
    """Finds that module as Python does."""

    def __init__(self, name, action):
        self.name, self._action = name, action

    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name == self.name else None
        if spec is not None:
            spec.loader = _Loader(spec.loader, self._action)
        return spec


class _Loader:
    """Loads a module as `loader` does, and calls `action` then."""

    def __init__(self, loader, action):
        self._loader, self._action = loader, action

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._action()
