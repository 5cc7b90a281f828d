"""Importing this puts the repository's tornado.platform.pypystm beside the installed Tornado, under Python 2.7.

PYPYSTM_TEST_WITHOUT="ssl bz2" makes modules impossible to import, as an interpreter that was built without them would.
"""

from __future__ import absolute_import, division, print_function

import os
import sys

for name in os.environ.get("PYPYSTM_TEST_WITHOUT", "").split():
    sys.modules[name] = None

import tornado.platform  # noqa: E402: after what it must do without

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

tornado.platform.__path__.insert(0, os.path.join(ROOT, "tornado", "platform"))
