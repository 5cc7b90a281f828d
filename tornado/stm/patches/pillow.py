"""Pillow: images in memory that others may write to, and what fonts remember.

To declare what images are (``c_functions/libraries/PIL.effects``), it is taken for granted that an image's memory is its own.  An image may
also be a view of a buffer that it was made from.  Bytes and files that are mapped for reading never change.  Whoever uses a view of
anything else runs alone.
"""

import functools
import mmap

from .. import core
from ..core import trusted

if core.COMPILED:
    from .. import _engine


def of_buffer(map_buffer):
    """``PIL._imaging.map_buffer``."""

    @functools.wraps(map_buffer)
    def method(data, *arguments):
        image = map_buffer(data, *arguments)
        if not never_changes(data):
            expose(image)
        return image

    return method


@trusted
def never_changes(data):
    if type(data) is bytes:
        return True
    if type(data) is not mmap.mmap:
        return False
    with memoryview(data) as view:
        return view.readonly


@trusted
def expose(image):
    core.exclusive("an image in memory that others may write to")
    if not _engine.register_exposed(image):  # there have been too many: no image is used beside others from now on
        _engine.register_type(type(image), _engine.KINDS["OPAQUE"])


def in_its_colours(getmask2):
    """``FreeTypeFont.getmask2``: a text with the colours of its font is drawn alone.

    The font remembers the colour of the text while Python code makes the image.
    """

    @functools.wraps(getmask2)
    def method(self, text, mode="", *arguments, **named):
        if mode == "RGBA":
            core.exclusive("a text in the colours of its font")
        return getmask2(self, text, mode, *arguments, **named)

    return method
