"""`make sanitize` puts this directory on PYTHONPATH: the engine then comes from the file $STM_ENGINE, in subprocesses too."""

import importlib.machinery
import importlib.util
import os
import sys


class Engine:
    """Finds ``tornado.stm._engine``, for the interpreter that it was compiled for."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        file = os.environ.get("STM_ENGINE", "")
        if name == "tornado.stm._engine" and file.endswith(importlib.machinery.EXTENSION_SUFFIXES[0]):
            return importlib.util.spec_from_file_location(name, file)
        return None


sys.meta_path.insert(0, Engine)
