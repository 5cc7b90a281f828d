"""XML: what is parsed and made is the transaction's own, others' elements are locked one by one, and parsers call code in Python."""

import copy
import io
import plistlib
import threading
import xml.dom.minidom
import xml.etree.ElementTree as ElementTree
import xml.sax
from xml.parsers import expat

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core

needs_engine()
activation.activate()

from beside import runs_alone, runs_beside_others
from meeting import APART, CONFLICT, meet
from rolled_back import rolled_back, run

pytestmark = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")

TEXT = "<list made='today'>" + "".join(
    f"<item n='{n}'>some &amp; text<price>{n}.50</price>tail\nof {n}<!-- note --><empty/></item>" for n in range(20)
) + "</list>"


def shape(element):
    return element.tag, element.attrib, element.text, element.tail, [shape(child) for child in element]


class Counting:
    """A target in Python."""

    def __init__(self):
        self.tags = []

    def start(self, tag, attributes):
        self.tags.append((tag, attributes))

    def data(self, text):
        self.tags.append(text)

    def close(self):
        return self.tags


class Handler(xml.sax.ContentHandler):
    def __init__(self):
        self.seen = []

    def startElement(self, name, attributes):
        self.seen.append((name, dict(attributes)))

    def characters(self, text):
        self.seen.append(text)


# ---- Results are those of the originals, beside others ---------------------------------------------------------------------


def parsed():
    return shape(ElementTree.fromstring(TEXT))


def parsed_from_files(tmp_path=None):
    return [shape(ElementTree.parse(stream).getroot()) for stream in (io.BytesIO(TEXT.encode()), io.StringIO(TEXT))]


def searched():
    tree = ElementTree.fromstring(TEXT)
    return (
        tree.find("item").get("n"), tree.findtext("item/price"), [e.text for e in tree.findall(".//price")],
        tree.find("item[@n='7']").attrib, tree.findtext("nothing", "default"), [e.tag for e in tree.iterfind("item/*")][:3],
        [e.get("n") for e in tree.iter("item")], [e.tag for e in tree.iter()], [e.tag for e in tree.iter("*")], list(tree.itertext()),
        [e.tag for e in tree[3].iter(tag=b"*")], list(tree[0].itertext()), tree.find("item", {"a": "b"}).tag,
    )  # fmt: skip


def made():
    tree = ElementTree.Element("a", {"x": "1"}, y="2")
    for n in range(6):
        child = ElementTree.SubElement(tree, "b", {"n": str(n)}, m="0")
        child.text, child.tail = "text", "tail"
        child.set("q", "1")
        child.attrib["z"] = "2"
    tree.append(tree.makeelement("last", {"k": "v"}))
    tree.insert(0, ElementTree.Element("first"))
    tree.extend([ElementTree.Element("c"), ElementTree.Comment("note")])
    tree.extend(ElementTree.Element("d") for _ in range(2))
    tree.remove(tree[1])
    del tree[0], tree[1:3]
    tree[0] = ElementTree.Element("other")
    tree[1:1] = [ElementTree.Element("e"), ElementTree.Element("f")]
    tree[0].clear()
    ElementTree.indent(tree)
    return shape(tree), len(tree), tree.keys(), tree.items(), ElementTree.tostring(tree), ElementTree.tostring(tree, "unicode")


def copied():
    tree = ElementTree.fromstring(TEXT)
    deep, shallow = copy.deepcopy(tree), copy.copy(tree)
    deep[0].text = deep[1].attrib["n"] = "changed"
    shallow.append(ElementTree.Element("more"))
    shallow[0].tail = "of both"
    return shape(tree), shape(deep), shape(shallow)


def written():
    file = io.BytesIO()
    ElementTree.ElementTree(ElementTree.fromstring(TEXT)).write(file, encoding="utf-8", xml_declaration=True)
    return file.getvalue(), ElementTree.canonicalize(TEXT)


def events():
    found = [(event, e.tag, e.get("n")) for event, e in ElementTree.iterparse(io.BytesIO(TEXT.encode()), ["start", "end", "comment"])]
    parser = ElementTree.XMLPullParser()
    parser.feed(TEXT[:100])
    parser.feed(TEXT[100:])
    for _, e in parser.read_events():
        e.set("seen", "1")
        found.append(shape(e))
    parser.close()
    return found


def built():
    builder = ElementTree.TreeBuilder()
    first = builder.start("a", {"b": "c"})
    builder.data("te")
    builder.data("xt")
    first.set("d", "e")
    builder.start("f", {})
    builder.end("f")
    builder.data("tail")
    builder.end("a")
    tree = builder.close()
    return tree is first, shape(tree)


def with_target():
    parser = ElementTree.XMLParser(target=Counting())
    parser.feed(TEXT)
    return parser.close()


def with_handlers():
    parser, seen = expat.ParserCreate(intern={}), []
    parser.StartElementHandler = lambda tag, attributes: seen.append((tag, attributes))
    parser.CharacterDataHandler = lambda text: seen.append((text, parser.CurrentLineNumber))
    parser.buffer_text = True
    parser.Parse(TEXT[:200])
    parser.Parse(TEXT[200:], True)
    other = expat.ParserCreate(namespace_separator=" ")
    other.EndElementHandler = lambda tag: seen.append(tag)
    return seen, other.ParseFile(io.BytesIO(TEXT.encode()))


def by_a_builder():
    """What defusedxml does."""
    builder, parser = ElementTree.TreeBuilder(), expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = builder.start, builder.end, builder.data
    parser.Parse(TEXT, True)
    return shape(builder.close())


def by_sax():
    handler = Handler()
    xml.sax.parseString(TEXT.encode(), handler)
    return handler.seen


def by_minidom():
    document = xml.dom.minidom.parseString(TEXT)
    return [e.firstChild.data for e in document.getElementsByTagName("price")], document.documentElement.toxml()


def by_plistlib():
    return plistlib.loads(plistlib.dumps({"a": [1, "x", {"b": True, "c": b"d"}]}))


def wrong():
    found = []
    for text in "<a><b></a>", "", "<a>&nothing;</a>", "<a/><b/>":
        with pytest.raises(ElementTree.ParseError) as raised:
            ElementTree.fromstring(text)
        found.append((str(raised.value), raised.value.code, raised.value.position))
    with pytest.raises(expat.ExpatError) as raised:
        expat.ParserCreate().Parse("<a>", True)
    found.append(str(raised.value))
    for call in (
        lambda: ElementTree.Element("a").append(1), lambda: ElementTree.Element("a").iter(1, 2), lambda: ElementTree.Element("a")[0],
        lambda: ElementTree.Element("a").get(), lambda: ElementTree.Element(), lambda: ElementTree.SubElement(1, "b"),
        lambda: ElementTree.Element("a").iter(name="b"), lambda: ElementTree.Element("a").itertext(1),
        lambda: expat.ParserCreate().ParseFile(io.StringIO("<a/>")), lambda: expat.ParserCreate().ParseFile(1),
        lambda: ElementTree.XMLParser(1, 2), lambda: expat.ParserCreate(1),
    ):  # fmt: skip
        with pytest.raises((TypeError, IndexError)) as raised:
            call()
        found.append(str(raised.value))
    return found


@pytest.mark.parametrize(
    "function", [parsed, parsed_from_files, searched, made, copied, written, events, built, with_target, with_handlers, by_a_builder, by_sax,
                 by_minidom, by_plistlib, wrong],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_it_runs_beside_others_and_gives_what_it_gives_without(function):
    assert runs_beside_others(function) == function()


def test_a_file_is_parsed_beside_others(tmp_path):
    path = tmp_path / "list.xml"
    path.write_text(TEXT)
    assert shape(runs_beside_others(ElementTree.parse, path).getroot()) == parsed()


# ---- Elements that others have -----------------------------------------------------------------------------------------------


def two_trees():
    trees = ElementTree.fromstring(TEXT), ElementTree.fromstring(TEXT)
    for tree in trees:
        "".join(tree.itertext())  # what a parser has found in pieces is joined by who asks first
    return trees


READS = {
    "get": lambda tree: tree[2].get("n"),
    "attrib": lambda tree: tree[2].attrib["n"],
    "keys": lambda tree: tree[2].keys(),
    "items": lambda tree: tree.find("item[@n='2']").items(),
    "iter": lambda tree: [e.get("n") for e in tree.iter()],
    "tostring": lambda tree: ElementTree.tostring(tree),
    "deepcopy": lambda tree: shape(copy.deepcopy(tree)),
    "copy": lambda tree: copy.copy(tree[2]).items(),
}
TEXTS = {
    "text": lambda tree: tree[2].text,
    "findtext": lambda tree: tree.findtext("item[3]"),
    "itertext": lambda tree: "".join(tree.itertext()),
    "tostring": lambda tree: ElementTree.tostring(tree),
}
CHILDREN = {
    "len": lambda tree: len(tree[2]),
    "find": lambda tree: tree[2].find("new") is None,
    "findall": lambda tree: len(tree[2].findall("*")),
    "for": lambda tree: [e.tag for e in tree[2]],
    "slice": lambda tree: [e.tag for e in tree[2][0:]],
    "iter": lambda tree: [e.tag for e in tree.iter()],
    "list": lambda tree: [e.tag for e in list(tree[2])],
}
CHANGES = {
    "set": (lambda tree: tree[2].set("n", "new"), READS),
    "text": (lambda tree: setattr(tree[2], "text", "new"), TEXTS),
    "append": (lambda tree: tree[2].append(ElementTree.Element("new")), CHILDREN),
    "insert": (lambda tree: tree[2].insert(0, ElementTree.Element("new")), CHILDREN),
    "SubElement": (lambda tree: ElementTree.SubElement(tree[2], "new"), CHILDREN),
    "extend": (lambda tree: tree[2].extend([ElementTree.Element("new")]), CHILDREN),
    "deletion": (lambda tree: tree[2].__delitem__(0), CHILDREN),
    "slice": (lambda tree: exec("tree[2][0:0] = [new]", {"tree": tree, "new": ElementTree.Element("new")}), CHILDREN),
    "slices": (lambda tree: tree[2].__setitem__(slice(0, 0), [ElementTree.Element("new")]), CHILDREN),
}


@pytest.mark.parametrize("change, read", [(change, read) for change, (_, reads) in CHANGES.items() for read in reads])
def test_who_reads_an_element_conflicts_with_who_changes_it(change, read):
    change, reads = CHANGES[change]
    read = reads[read]
    read_one, change_one, change_other = (lambda one, other: read(one)), (lambda one, other: change(one)), (lambda one, other: change(other))
    assert meet(two_trees, read_one, change_one) == CONFLICT
    assert meet(two_trees, read_one, read_one) == meet(two_trees, read_one, change_other) == APART


def test_texts_in_pieces_are_joined_by_one_after_the_other():
    def two_in_pieces():
        return ElementTree.fromstring(TEXT), ElementTree.fromstring(TEXT)

    def read(one, other):
        assert [e.text for e in one.iter("item")] == ["some & text"] * 20

    assert meet(two_in_pieces, read, read) == CONFLICT
    assert meet(two_in_pieces, lambda one, other: one[0].get("n"), read) == CONFLICT
    assert meet(two_in_pieces, lambda one, other: one[0].get("n"), lambda one, other: one[0].tag) == APART


def test_two_elements_of_a_tree_are_changed_and_read_apart():
    def change(one, other):
        one[1].set("n", "new")
        one[1].text = "new"

    assert meet(two_trees, lambda one, other: one[2].find("price").text, change) == APART


class Named(ElementTree.Element):
    """A class derived from it: with an attribute of its own, and one in the place of the original."""

    tail = None

    @property
    def name(self):
        return self.get("name")

    @name.setter
    def name(self, value):
        self.set("name", value)


@pytest.mark.parametrize("attribute", ["name", "text", "tail", "other"])
def test_elements_of_a_derived_class(attribute):
    def make():
        element = Named("a", name="b")
        setattr(element, attribute, "old")
        return (element,)

    def read(element):
        return getattr(element, attribute)

    def change(element):
        setattr(element, attribute, "new")

    assert meet(make, read, change) == CONFLICT
    assert meet(make, read, read) == APART
    (element,) = make()
    rolled_back(change, element)
    assert read(element) == "old"


def test_an_attempt_that_is_rolled_back_leaves_anothers_tree_as_it_was():
    tree = ElementTree.fromstring(TEXT)
    before = shape(ElementTree.fromstring(TEXT))
    for change in (
        lambda: tree.append(ElementTree.Element("a")), lambda: tree.set("a", "b"), lambda: tree.attrib.update(a="b"), tree.clear,
        lambda: tree.__delitem__(0), lambda: setattr(tree[3], "tail", "b"), lambda: setattr(tree, "attrib", {}),
        lambda: ElementTree.SubElement(tree, "a"), lambda: tree.__setitem__(slice(None), []), lambda: tree.remove(tree[2]),
    ):  # fmt: skip
        rolled_back(change)
        assert shape(tree) == before


def test_an_own_tree_with_anothers_element_in_it_is_not_own_altogether():
    """The walk over it comes to elements that have to be opened."""

    def read(one, other):
        tree = ElementTree.Element("own")
        tree.append(one[2])
        return [e.get("n") for e in tree.iter()], tree.find("item").text

    def change(one, other):
        one[2].set("n", "new")

    assert meet(two_trees, read, change) == CONFLICT


def test_a_dict_that_others_have_is_not_an_elements_own():
    """The element that is made with it copies it, but not one that it is assigned to."""
    shared = {"n": "0"}

    def change():
        tree = ElementTree.fromstring(TEXT)
        tree.attrib = shared
        tree.set("n", "new")
        tree[0].attrib = shared

    rolled_back(change)
    assert shared == {"n": "0"}
    run(change)
    assert shared == {"n": "new"}


def test_a_builder_is_given_a_dict_that_others_have():
    shared = {"n": "0"}

    def change():
        builder = ElementTree.TreeBuilder()
        builder.start("a", shared)
        builder.end("a")
        builder.close().set("n", "new")

    rolled_back(change)
    assert shared == {"n": "0"}


# ---- Parsers -----------------------------------------------------------------------------------------------------------------


def test_a_parser_of_before_is_used_alone():
    for make, use in (
        (ElementTree.XMLParser, lambda parser: parser.feed("<a>")), (ElementTree.TreeBuilder, lambda builder: builder.start("a", {})),
        (ElementTree.TreeBuilder, lambda builder: ElementTree.XMLParser(target=builder)),
        (expat.ParserCreate, lambda parser: parser.Parse("<a>")), (expat.ParserCreate, lambda parser: setattr(parser, "buffer_text", True)),
    ):  # fmt: skip
        made = [make(), make()]
        assert runs_alone(lambda made=made, use=use: use(made.pop()))


def test_parsers_that_call_c_code_run_alone():
    texts = []

    class Target:
        def __init__(self):
            self.data = texts.append

    def by_target():
        parser = ElementTree.XMLParser(target=Target())
        parser.feed(TEXT)

    def by_handler():
        parser = expat.ParserCreate()
        parser.CharacterDataHandler = texts.append
        parser.Parse(TEXT, True)

    def by_factory():
        ElementTree.TreeBuilder(element_factory=lambda tag, attributes: ElementTree.Element(tag, attributes)).start("a", {})

    for parse in by_target, by_handler, by_factory:
        assert runs_alone(parse)


def test_what_handlers_change_is_rolled_back():
    seen = []

    def parse():
        parser = expat.ParserCreate()
        parser.StartElementHandler = lambda tag, attributes: seen.append(tag)
        parser.Parse(TEXT, True)

    rolled_back(parse)
    assert seen == []
    run(parse)
    assert len(seen) == 1 + 3 * 20


def test_a_dict_for_names_that_others_have_is_locked():
    names = {}

    def parse():
        expat.ParserCreate(intern=names).Parse(TEXT, True)

    rolled_back(parse)
    assert names == {}


# ---- Text streams around bytes of the transaction's own ------------------------------------------------------------------------


def test_a_text_stream_around_own_bytes_is_own():
    def write():
        data = io.BytesIO()
        stream = io.TextIOWrapper(data, "utf-8", newline="\n")
        stream.write("é\n")
        stream.flush()
        stream.detach()
        return data.getvalue()

    def read():
        return list(io.TextIOWrapper(io.BytesIO("é\nb".encode()), encoding="utf-8"))

    assert runs_beside_others(write) == "é\n".encode()
    assert runs_beside_others(read) == ["é\n", "b"]


def test_a_text_stream_around_anothers_bytes_runs_alone():
    data = io.BytesIO(b"text")
    assert runs_alone(lambda: io.TextIOWrapper(data).detach())


def test_an_abstract_class_is_made_beside_others():
    def make():
        import abc

        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self): ...

        class Square(Shape):
            def area(self):
                return 4

        return sorted(Shape.__abstractmethods__), Square().area()

    assert runs_beside_others(make) == (["area"], 4)


def test_threads_parse_and_search_at_once():
    """What each finds is its own, whatever the others do meanwhile."""
    tree, results = ElementTree.fromstring(TEXT), []

    def step(n):
        own = ElementTree.fromstring(TEXT)
        own[n].set("n", "own")
        tree[0].set("count", str(int(tree[0].get("count", "0")) + 1))
        results.append(own.findall("item[@n='own']")[0] is own[n] and sum(1 for _ in own.iter()) == 1 + 3 * 20)

    threads = [threading.Thread(target=lambda n=n: [run(step, n) for _ in range(20)]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results) and len(results) == 80 and tree[0].get("count") == "80"
