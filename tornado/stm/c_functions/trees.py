"""XML in transactions: ``xml.etree.ElementTree`` and ``xml.parsers.expat``, and what is made of them (``xml.sax``, ``minidom``, ``plistlib``).

A parser is used by the transaction that has made it; others that use it run alone.  What it calls are functions in Python, or it runs
alone as well.  The trees that it makes are the transaction's own; of others each element is locked by itself
(engine/objects/element.c, engine/calls/trees.c).
"""

import sys

from .. import _engine, core

_OF_ELEMENTS = (
    "get", "keys", "items", "set", "append", "clear", "extend", "insert", "remove", "find", "findall", "findtext", "iter", "itertext",
    "__copy__", "__deepcopy__", "makeelement",
)  # fmt: skip
_OF_BUILDERS = "start", "end", "data", "comment", "pi", "close"
_OF_PARSERS = "feed", "flush", "close"
#: of the parser of expat's: they read or change it, and nothing else
_SETTINGS = (
    "SetBase", "GetBase", "GetInputContext", "SetParamEntityParsing", "UseForeignDTD", "SetReparseDeferralEnabled",
    "GetReparseDeferralEnabled", "SetBillionLaughsAttackProtectionActivationThreshold",
    "SetBillionLaughsAttackProtectionMaximumAmplification", "SetAllocTrackerActivationThreshold", "SetAllocTrackerMaximumAmplification",
)  # fmt: skip

#: how much is read of a file at once, in bytes: what the originals ask for
_WHOLE, _PIECE = 64 * 1024, 2048


def parse_whole(parser, file, /):
    """Twin of ``XMLParser._parse_whole``: the file is read by code with barriers."""
    while data := file.read(_WHOLE):
        if type(data) is str:
            data = data.encode("utf-8", "surrogatepass")
        elif type(data) is not bytes:
            break
        parser.feed(data)
    return parser.close()


def parse_file(parser, file, /):
    """Twin of the method ``ParseFile`` of expat's parser, likewise."""
    read = getattr(file, "read", None)
    if read is None:
        raise TypeError("argument must have 'read' attribute")
    while True:
        data = read(_PIECE)
        if not isinstance(data, bytes | bytearray):
            raise TypeError(f"read() did not return a bytes object (type={type(data).__name__})")
        if len(data) > _PIECE:
            raise ValueError(f"read() returned too much data: {_PIECE} bytes requested, {len(data)} returned")
        status = parser.Parse(data, not data)
        if not data:
            return status


class _Events:
    """Takes the events that a builder tells of to the queue of the program; the elements in them are new."""

    __slots__ = ("add",)

    def __init__(self, queue):
        self.add = queue.append

    def append(self, event):
        if type(event[1]) is _Element:
            core.fresh(event[1])
        self.add(event)


def set_events(parser, queue, events=None, /):
    """Twin of ``XMLParser._setevents``."""
    return _tell_events(parser, _Events(queue), events if events is None else list(events))


@core.trusted
def _tell_events(parser, queue, events):
    if not core.is_fresh(parser):
        core.exclusive("use of a parser that another transaction has made")
    return _set_events(parser, queue, events)


def _register(effects, twins):
    for function, effect in effects.items():
        _engine.register_effect(function, _engine.EFFECTS[effect])
    for function, twin in twins.items():
        _engine.register_effect(function, _engine.EFFECTS["TWIN"], twin)


@core.once
@core.trusted
def begin_elements():
    """``_elementtree`` has been loaded."""
    global _Element, _set_events
    module = sys.modules["_elementtree"]
    try:
        _engine.begin_elements(module.Element)
    except RuntimeError:
        return  # another structure than is known here: all of it runs alone
    _Element, parser, builder = module.Element, module.XMLParser, module.TreeBuilder
    _set_events = vars(parser)["_setevents"]
    _engine.register_type(_Element, _engine.KINDS["ELEMENT"])
    opaque = parser, builder, type(_Element("a").iter())
    for type_ in opaque:
        _engine.register_type(type_, _engine.KINDS["OPAQUE"])
    in_c = [_Element, parser, builder, module.SubElement]
    for type_, names in {_Element: _OF_ELEMENTS, builder: _OF_BUILDERS, parser: _OF_PARSERS}.items():
        in_c += (vars(type_)[name] for name in names)
    twins = {function: _engine.tree_twin(function) for function in in_c}
    _register({vars(_Element)["iterfind"]: "PURE"},
              {**twins, vars(parser)["_parse_whole"]: parse_whole, _set_events: set_events})


@core.once
@core.trusted
def begin_expat():
    """``pyexpat`` has been loaded."""
    module = sys.modules["pyexpat"]
    parser = module.XMLParserType
    _engine.register_type(parser, _engine.KINDS["OPAQUE"])
    _engine.watch_handlers(parser)
    in_c = module.ParserCreate, vars(parser)["Parse"], vars(parser)["ExternalEntityParserCreate"]
    settings = {vars(parser)[name]: "OPAQUE" for name in _SETTINGS if name in vars(parser)}
    _register({module.ErrorString: "PURE", **settings},
              {**{function: _engine.tree_twin(function) for function in in_c}, vars(parser)["ParseFile"]: parse_file})
