"""Files: an aborted attempt leaves neither another position nor an open file, and who looks at any gives way to who changes them."""

import csv
import functools
import glob
import gzip
import io
import json
import logging
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile
import zipfile
import zoneinfo

import pytest

from beside import beside_others, is_irrevocable, runs_alone, runs_beside_others
from interpreters import needs_engine
from meeting import APART, CONFLICT, Meeting
from tornado.stm import activation, core, testing
from tornado.stm.core import trusted

needs_engine()

from tornado.stm.input_output import files

activation.activate()

DATA = bytes(range(256)) * 1000


def run(function):
    return core.Transaction(function, ()).run()


@trusted
def ran_alone():
    return core.stats()["exclusives"]


def check(first, second, alone=False):
    """What `second` returns in an attempt that comes after one in which `first` has been called and rolled back."""
    seen = []

    @trusted
    def is_first():
        seen.append(None)
        return len(seen) == 1

    def attempt():
        if is_first():
            first()
            raise core.Abort
        return second()

    run(lambda: None)
    before = ran_alone()
    result = run(attempt)
    assert len(seen) == 2
    assert alone or ran_alone() == before
    return result


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(DATA)
    return path


@pytest.fixture(autouse=True)
def called_before(path):
    """What is called for the first time may have to run alone."""

    def everything():
        with open(path, "rb") as file:
            file.seek(3)
            return file.read(4), file.tell()

    for _ in range(3):
        assert run(everything) == (DATA[3:7], 7)


def test_what_was_read_is_read_again(path):
    with open(path, "rb") as file:
        file.read(10)
        assert check(lambda: file.read(100), lambda: file.read(20)) == DATA[10:30]
        assert check(lambda: file.seek(5000), lambda: file.read(10)) == DATA[30:40]
        assert check(lambda: (file.read(), file.read()), lambda: (file.tell(), file.read(2))) == (40, DATA[40:42])
        assert file.tell() == 42


def test_code_is_opened_as_files_are(path):
    def read():
        with io.open_code(str(path)) as file:
            return type(file), file.mode, file.read(10)

    assert run(read) == read() == (io.BufferedReader, "rb", DATA[:10])
    before = os.listdir("/proc/self/fd")
    assert check(read, read) == read()
    assert os.listdir("/proc/self/fd") == before
    for wrong in 1, None, b"name", str(path) + ".missing":
        outcomes = []
        for call in io.open_code, lambda path: run(lambda: io.open_code(path)):
            with pytest.raises((TypeError, OSError)) as raised:
                call(wrong)
            outcomes.append((raised.type, str(raised.value)))
        assert outcomes[0] == outcomes[1]


def test_an_aborted_attempt_leaves_no_file_open(path):
    before = os.listdir("/proc/self/fd")
    kept = []

    @trusted
    def keep(file):
        kept.append(file)

    def read():
        file = open(path, "rb")
        keep(file)
        return file.read(5)

    assert check(read, read) == DATA[:5]
    assert [file.closed for file in kept] == [True, False]
    kept[1].close()
    assert os.listdir("/proc/self/fd") == before


def test_a_file_goes_from_one_transaction_to_the_next(path):
    files = []
    pieces = []

    def begin():
        files.append(open(path, "rb"))
        return files[0].read(1000)

    def go_on():
        return files[0].read(100_000)

    def end():
        with files[0] as file:
            return file.read()

    pieces.append(check(begin, begin))
    pieces += [check(go_on, go_on), check(go_on, go_on)]
    assert not files[0].closed
    pieces.append(check(lambda: files[0].close(), end, alone=True))
    assert files[0].closed and b"".join(pieces) == DATA


def test_closing_waits_for_the_commit(path):
    file = open(path, "rb")
    check(file.close, lambda: None)
    assert file.read(3) == DATA[:3]
    check(file.close, file.close)
    assert file.closed


def test_a_file_that_the_transaction_has_closed_cannot_be_read(path):
    file = open(path, "rb")

    def read():
        file.close()
        with pytest.raises(ValueError):
            file.read()

    run(read)


def test_what_the_transaction_has_written_is_read(path):
    with open(path, "ab") as log:

        def write_and_read():
            log.write(b"more")
            log.flush()
            with open(path, "rb") as file:
                return file.read()

        assert run(write_and_read) == DATA + b"more"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text("first é\nsecond\r\nthird\n", encoding="utf-8", newline="")
    return path


def test_text_is_read_beside_others(text):
    def whole():
        with open(text, encoding="utf-8") as file:
            return file.read()

    def lines():
        with open(text, "rt", encoding="utf-8", errors="replace", newline="") as file:
            first = file.readline(3), next(file), file.readable(), file.writable(), file.name == str(text)
            rest = list(file)
            file.seek(0)
            return first, rest, file.readlines(), file.encoding, file.newlines

    def wrongly():
        with open(text, encoding="ascii") as file:
            for use in (file.read, lambda: file.write("x")):
                with pytest.raises((UnicodeDecodeError, io.UnsupportedOperation)):
                    use()
            file.flush()
            return file.seek(0), file.tell()

    for look in (whole, lines, wrongly, lambda: text.read_text(encoding="utf-8"), lambda: json.loads(text.with_name("json").read_text())):
        text.with_name("json").write_text('{"a": [1]}')
        expected = look()
        run(look)  # a codec may have to be imported
        assert check(look, look) == expected


def test_an_aborted_attempt_leaves_no_text_file_open(text):
    before = os.listdir("/proc/self/fd")
    files = []

    @trusted
    def keep(file):
        files.append(file)

    def read():
        file = open(text, encoding="utf-8")
        keep(file)
        return next(file)

    assert check(read, read) == "first é\n"
    assert [file.closed for file in files] == [True, False]
    files.pop().close()
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("take", [next, list, lambda file: next(csv.reader(file)), lambda file: file.read(), lambda file: file.readline()])
def test_lines_are_taken_alone_from_a_text_file_of_before(text, take):
    """Where it stands cannot be put back."""
    with open(text, encoding="utf-8") as file:
        alone = run(lambda: (take(file), core.is_exclusive()))[1]
        assert alone


def test_a_file_that_c_code_opens_and_closes_is_left_closed(tmp_path, monkeypatch):
    """ZoneInfo has Python code read a file in between: beside others for a class derived from it."""

    class OwnZone(zoneinfo.ZoneInfo):
        pass

    (tmp_path / "Zone").write_bytes(b"TZif2" + bytes(15) + 2 * (bytes(8) + b"\0\0\0\1\0\0\0\4") + bytes(6) + b"UTC\0" + b"\nUTC0\n")
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", trusted(lambda report: unraisable.append(report.exc_value)))
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([tmp_path])
    zones = []

    def make():
        try:
            zones.append(OwnZone("Zone"))
        except ValueError:
            zones.append(None)

    try:
        make()
        zones.clear()
        OwnZone.clear_cache()
        check(make, make, alone=True)
    finally:
        zoneinfo.reset_tzpath(before)
    assert len(zones) == 1 and not unraisable


@pytest.mark.parametrize("kind", [str, os.fsencode, pathlib.Path])
def test_kinds_of_paths(path, kind):
    file = kind(path)
    for _ in range(2):
        assert run(lambda: open(file, "rb").read()) == DATA


def test_what_cannot_be_opened(path, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for file, mode, error in (
        (tmp_path, "rb", IsADirectoryError), (tmp_path / "missing", "rb", FileNotFoundError), ("\0", "rb", ValueError),
        (path, "nonsense", ValueError), (3.5, "rb", TypeError), (987654, "rb", OSError),
    ):
        with pytest.raises(error):
            run(lambda: open(file, mode))
    descriptor = os.open(path, os.O_RDONLY)
    assert run(lambda: open(descriptor, "rb").read(3)) == DATA[:3]


def test_that_a_file_is_missing_is_found_out_beside_others(path, tmp_path):
    def open_all():
        for file in tmp_path / "missing", path / "inside":
            for mode in "r", "rb":
                with pytest.raises((FileNotFoundError, NotADirectoryError)):
                    open(file, mode)
        return core.is_exclusive()

    run(open_all)
    assert not run(open_all)

    def write_what_is_missing():
        with pytest.raises(FileNotFoundError):
            open(tmp_path / "missing" / "inside", "w")
        return core.is_exclusive()

    assert not run(write_what_is_missing)


def test_other_ways_to_open(path):
    def read_text():
        with open(path, encoding="latin-1", newline="") as file:
            return file.read()

    def write():
        with open(path, "wb") as file:
            file.write(b"new")

    def read_unbuffered():
        with open(path, "rb", buffering=0) as file:
            return file.read()

    for _ in range(2):
        assert run(read_text).encode("latin-1") == run(read_unbuffered)
    run(write)
    assert run(read_unbuffered) == b"new"


@pytest.mark.parametrize("look", [os.stat, os.lstat, os.path.getsize], ids=lambda look: look.__name__)
def test_what_has_been_written_to_a_file_is_there_for_who_looks_at_its_size(path, look):
    with open(path, "wb") as file:

        def write():
            file.write(b"abc")
            file.flush()
            found = look(path)
            return found if isinstance(found, int) else found.st_size

        assert run(write) == 3


def test_the_descriptor_of_a_file_that_has_been_written_to(path):
    with open(path, "wb") as file:

        def write():
            file.write(b"abcd")
            file.flush()
            return os.fstat(file.fileno()).st_size

        assert run(write) == 4


LOOKS_AFTER_A_LINE = {
    "stat": lambda path: os.stat(path).st_size,
    "getmtime": os.path.getmtime,
    "exists": lambda path: os.path.exists(path) and not os.path.exists(path.with_name("missing")),
    "open": lambda path: open(path, "rb").read() == DATA,
    "scandir": lambda path: [entry.stat().st_size for entry in os.scandir(path.parent) if entry.name == path.name],
    "directory": lambda path: os.stat(path.parent).st_mode,
}


@pytest.mark.parametrize("look", LOOKS_AFTER_A_LINE.values(), ids=LOOKS_AFTER_A_LINE)
def test_who_has_written_to_one_file_looks_at_another_beside_others(look, path, tmp_path):
    """A handler writes a line to the log, and then loads a template."""
    with open(tmp_path / "log", "a") as log:

        def look_after_a_line():
            log.write("line\n")
            log.flush()
            return look(path)

        assert runs_beside_others(look_after_a_line) == look(path)


@pytest.mark.parametrize("read", [lambda path: path.read_text(), lambda path: path.stat().st_size], ids=["open", "stat"])
def test_what_has_been_written_is_there_by_any_name(read, path, tmp_path):
    os.link(path, tmp_path / "link")
    os.symlink(path, tmp_path / "symlink")
    path.write_text("text")
    with open(path, "a") as file:

        def write(name):
            file.write("more")
            file.flush()
            return read(tmp_path / name)

        assert [run(lambda name=name: write(name)) for name in ("link", "symlink")] in (["textmore", "textmoremore"], [8, 12])


# ---- Directories -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "a.txt").write_text("text")
    (tmp_path / "link").symlink_to("inside")
    return tmp_path


def entries(tree):
    with os.scandir(tree) as found:
        return sorted((e.name, e.path, e.is_dir(), e.is_file(follow_symlinks=False), e.is_symlink(), e.inode(), e.stat().st_size,
                       os.fspath(e), repr(e)) for e in found)  # fmt: skip


def begun(tree):
    found = os.scandir(path=os.fsencode(tree))
    first = next(found).name
    found.close()
    return type(first), list(found)


LOOKS = {
    "scandir": entries,
    "begun": begun,
    "walk": lambda tree: sorted(os.walk(tree, followlinks=True)),
    "glob": lambda tree: sorted(glob.glob(f"{tree}/**", recursive=True)),
    "rglob": lambda tree: sorted(tree.rglob("*.txt")),
    "iterdir": lambda tree: sorted(tree.iterdir()),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_directories_are_looked_through_beside_others(tree, look):
    expected = look(tree)
    assert check(lambda: look(tree), lambda: look(tree)) == expected


@pytest.mark.parametrize("where, error", [("missing", FileNotFoundError), ("inside/a.txt", NotADirectoryError)])
def test_what_is_no_directory(tree, where, error):
    with pytest.raises(error, match=where):
        run(lambda: os.scandir(tree / where))


def test_an_entry_of_a_directory_remembers_what_an_attempt_has_looked_at(tree):
    """So one of before is looked at alone."""
    entry = run(lambda: next(os.scandir(tree / "inside")))
    for look in (lambda: entry.stat().st_size, lambda: entry.is_file()):
        found, alone = run(lambda look=look: (look(), core.is_exclusive()))
        assert found and alone


def test_the_size_of_an_entry_that_has_been_written_to(tree):
    with open(tree / "inside" / "a.txt", "a") as file:

        def write():
            (entry,) = os.scandir(tree / "inside")
            file.write("more")
            file.flush()
            return entry.stat().st_size

        assert run(write) == 8


# ---- Streams in Python -----------------------------------------------------------------------------------------------------


class Letters(io.RawIOBase):
    """A stream as werkzeug's of a request's body: it fills buffers."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)

    def readable(self):
        return True

    def readinto(self, buffer):
        piece = self.pieces.pop(0) if self.pieces else b""
        if isinstance(piece, bytes):
            buffer[: len(piece)] = piece
            return len(piece)
        return piece


RAW = {
    "read": lambda: (Letters(b"abc", b"de").read(5), Letters(b"abc").read(3), Letters().read(2), Letters(b"").read(0)),
    "all": lambda: (Letters(b"abc", b"de").read(), Letters(b"abc").read(-1), Letters(b"a").readall(), Letters().readall()),
    "would block": lambda: (Letters(None).read(3), Letters(None).readall(), Letters(b"a", None, b"b").readall()),
    "too much": lambda: Letters(7).read(3),
    "no number": lambda: Letters("a").read(3),
    "no size": lambda: Letters(b"a").read("a"),
    "none": lambda: Letters(b"a").read(None),
}


@pytest.mark.parametrize("name", RAW)
def test_raw_streams_in_python_are_read_beside_others(name):
    def outcome():
        try:
            return RAW[name]()
        except (TypeError, ValueError) as e:
            return type(e), str(e)

    found = []

    def step():
        before = ran_alone()
        found.append((outcome(), ran_alone() - before))

    core.Transaction(step, ()).run()
    assert found == [(outcome(), 0)]


def test_what_the_program_puts_in_the_place_of_stat_is_not_asked(tmp_path, monkeypatch):
    """Tools that look for blocking calls do so, and raise."""
    (tmp_path / "file").write_text("text")

    def read():
        with open(tmp_path / "file", "rb") as file:
            return file.read()

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", None)
        patch.setattr(os, "fstat", None)
        text = run(read)
    assert text == b"text"


# ---- Files that are made, written to, renamed and removed --------------------------------------------------------------------


def in_a_folder(function):
    """Calls it with a new folder of its own."""

    @functools.wraps(function)
    def call():
        with tempfile.TemporaryDirectory() as folder:
            return function(pathlib.Path(folder))

    return call


@in_a_folder
def text_files(folder):
    with open(folder / "a", "w", encoding="utf-8") as file:
        file.write("abc\n")
        print("é", file=file)
        file.flush()
        size = os.path.getsize(file.name)
    with open(folder / "a", "a", encoding="utf-8") as file:
        file.writelines(["d\n", "e\n"])
    with pytest.raises(FileExistsError):
        open(folder / "a", "x")
    with pytest.raises(ValueError, match="closed"):
        file.write("f")
    with pytest.raises(TypeError):
        open(folder / "b", "x").write(b"")
    return size, (folder / "a").read_text("utf-8"), os.path.exists(folder / "b"), list(open(folder / "a", "rb"))


@in_a_folder
def binary_files(folder):
    with open(folder / "a", "wb") as file:
        file.write(b"abc" * 10_000)
        file.write(memoryview(b"def"))
    with open(folder / "a", "r+b") as file:
        file.seek(2)
        file.write(b"X")
        file.seek(0)
        start, place = file.read(4), file.tell()
        file.truncate(5)
    with open(folder / "c", "wb", 0) as file:
        file.write(b"abc")
        file.seek(1)
        file.write(memoryview(b"X"))
    with open(folder / "c", "a", 1) as file:
        file.write("line\n")
    with open(folder / "c", "rb", buffering=0) as file:
        start += file.read(2) + file.readall()
    with open(folder / "b", "w+", encoding="utf-8") as file:
        file.write("abc")
        file.seek(0)
        again = file.read()
    with open(folder / "a", "rb") as file:
        return start, place, again, file.readline(), file.peek(), file.seek(0), file.read1(2), file.tell()


@in_a_folder
def replaced(folder):
    with open(folder / "new", "w") as file:
        json.dump({"a": [1, 2]}, file)
    os.replace(folder / "new", folder / "data.json")
    return sorted(os.listdir(folder)), json.load(open(folder / "data.json"))


@in_a_folder
def tables_and_archives(folder):
    with open(folder / "t.csv", "w", newline="") as file:
        csv.writer(file).writerows([[1, 2], ["a", "b"]])
    with gzip.open(folder / "t.gz", "wb") as file:
        file.write(b"abc" * 100)
    with zipfile.ZipFile(folder / "t.zip", "w") as file:
        file.writestr("a", "b" * 100)
        file.write(folder / "t.csv", "t.csv")
    return list(csv.reader(open(folder / "t.csv"))), zipfile.ZipFile(folder / "t.zip").read("t.csv")


@in_a_folder
def folders(folder):
    os.makedirs(folder / "p" / "q")
    os.makedirs(folder / "p" / "q", exist_ok=True)
    (folder / "p" / "q" / "f").write_text("text")
    shutil.move(folder / "p" / "q" / "f", folder / "p" / "g")
    shutil.copy(folder / "p" / "g", folder / "p" / "h")
    shutil.copytree(folder / "p", folder / "r")
    (folder / "r" / "touched").touch()
    os.rmdir(folder / "p" / "q")
    shutil.rmtree(folder / "p")
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")), (folder / "r" / "h").read_bytes()


@in_a_folder
def temporary_files(folder):
    number, path = tempfile.mkstemp(dir=folder)
    with os.fdopen(number, "w") as file:
        file.write("text")
    with tempfile.NamedTemporaryFile("w", dir=folder) as file:
        file.write("more")
        file.flush()
        more = open(file.name).read()
    with tempfile.TemporaryFile() as file:
        file.write(b"most")
        file.seek(0)
        most = file.read()
    return open(path).read(), more, most, len(os.listdir(folder))


@in_a_folder
def numbers(folder):
    number = os.open(folder / "a", os.O_RDWR | os.O_CREAT)
    os.write(number, b"abc")
    os.write(number, bytearray(b"def"))
    os.lseek(number, 1, os.SEEK_SET)
    found = os.read(number, 3)
    os.ftruncate(number, 4)
    os.fsync(number)
    os.close(number)
    return found, (folder / "a").read_bytes()


@pytest.mark.parametrize(
    "function", [text_files, binary_files, replaced, tables_and_archives, folders, temporary_files, numbers],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_files_are_changed_beside_others(function):
    assert runs_beside_others(function) == function()


def test_who_changes_files_is_irrevocable(tmp_path):
    def change():
        before = is_irrevocable()
        (tmp_path / "new").write_text("text")
        return before, is_irrevocable()

    def read():
        os.path.exists(tmp_path), os.listdir(tmp_path), open(tmp_path / "new").read()
        return is_irrevocable()

    assert runs_beside_others(change) == (False, True)
    assert runs_beside_others(read) is False


#: each is given a folder with the files a and b, a link to a, and the folder d
LOOKS = {
    os.access: lambda folder: os.access(folder / "a", os.R_OK),
    os.getxattr: lambda folder: pytest.raises(OSError, os.getxattr, folder / "a", "user.none") and None,
    os.listdir: lambda folder: os.listdir(folder),
    os.listxattr: lambda folder: os.listxattr(folder / "a"),
    os.lstat: lambda folder: os.lstat(folder / "a"),
    os.pathconf: lambda folder: os.pathconf(folder, "PC_NAME_MAX"),
    os.readlink: lambda folder: os.readlink(folder / "link"),
    os.scandir: lambda folder: [entry.name for entry in os.scandir(folder)],
    os.stat: lambda folder: os.stat(folder / "a"),
    os.statvfs: lambda folder: os.statvfs(folder),
    open: lambda folder: open(folder / "a").close(),
}
CHANGES = {
    os.chmod: lambda folder: os.chmod(folder / "a", 0o600),
    os.chown: lambda folder: os.chown(folder / "a", -1, -1),
    os.copy_file_range: lambda folder: copy_range(folder / "a", folder / "c"),
    os.lchown: lambda folder: os.lchown(folder / "a", -1, -1),
    os.link: lambda folder: os.link(folder / "a", folder / "c"),
    os.mkdir: lambda folder: os.mkdir(folder / "c"),
    os.mkfifo: lambda folder: os.mkfifo(folder / "c"),
    os.mknod: lambda folder: os.mknod(folder / "c"),
    os.open: lambda folder: os.close(os.open(folder / "a", os.O_RDONLY)),
    os.remove: lambda folder: os.remove(folder / "a"),
    os.removexattr: lambda folder: pytest.raises(OSError, os.removexattr, folder / "a", "user.none") and None,
    os.rename: lambda folder: os.rename(folder / "a", folder / "c"),
    os.replace: lambda folder: os.replace(folder / "a", folder / "b"),
    os.rmdir: lambda folder: os.rmdir(folder / "d"),
    os.setxattr: lambda folder: pytest.raises(OSError, os.setxattr, folder / "missing", "user.none", b"") and None,
    os.symlink: lambda folder: os.symlink(folder / "a", folder / "c"),
    os.truncate: lambda folder: os.truncate(folder / "a", 1),
    os.unlink: lambda folder: os.unlink(folder / "a"),
    os.utime: lambda folder: os.utime(folder / "a", (1, 2)),
    open: lambda folder: open(folder / "a", "a").close(),
}


def copy_range(here, there):
    with open(here, "rb") as source, open(there, "wb") as target:
        os.copy_file_range(source.fileno(), target.fileno(), 2)


@pytest.fixture
def make_folder(tmp_path):
    made = []

    def make():
        folder = tmp_path / str(len(made))
        made.append(folder)
        (folder / "d").mkdir(parents=True)
        for name in "a", "b":
            (folder / name).write_text("text")
        (folder / "link").symlink_to("a")
        os.fspath(folder)  # it remembers what that is
        return folder

    return make


def test_each_function_is_in_the_tables():
    assert set(files._LOOKS) < set(LOOKS) and set(files._CHANGES) < set(CHANGES)


@pytest.mark.parametrize("look", LOOKS.values(), ids=[function.__name__ for function in LOOKS])
def test_who_looks_at_files_gives_way_to_who_changes_them(look, make_folder):
    change = CHANGES[os.mkdir]
    for _ in range(2):
        run(lambda: look(make_folder()))
    run(lambda: change(make_folder()))
    one, other = make_folder(), make_folder()
    # All files are one object.
    assert Meeting(lambda: (), lambda: look(one), lambda: change(one)).run() == CONFLICT
    assert Meeting(lambda: (), lambda: look(one.parent / other.name), lambda: change(make_folder())).run() == CONFLICT
    assert Meeting(lambda: (), lambda: look(other), lambda: look(other)).run() == APART


@pytest.mark.parametrize("change", CHANGES.values(), ids=[function.__name__ for function in CHANGES])
def test_each_change_is_made_beside_others_but_those_who_look(change, make_folder):
    run(lambda: change(make_folder()))
    folders = [make_folder() for _ in range(2)]
    assert beside_others(lambda: change(folders.pop()))[0]
    folder = make_folder()
    assert Meeting(lambda: (), lambda: os.path.exists(folder / "a"), lambda: change(folder)).run() == CONFLICT


def test_who_has_written_what_waits_for_the_commit_changes_files_alone(path, tmp_path):
    """So what is written comes in the order of the program."""
    with open(tmp_path / "log", "a") as log:

        def after_a_line():
            log.write("line\n")
            os.rename(path, tmp_path / "renamed")

        def between():
            with open(tmp_path / "new", "w") as file:
                file.write("text")
                log.write("line\n")

        def before_a_line():
            with open(tmp_path / "new", "w") as file:
                file.write("text")
            log.write("line\n")
            log.flush()

        assert beside_others(before_a_line)[0]
        assert not beside_others(after_a_line)[0]
        assert not beside_others(between)[0]
    assert (tmp_path / "log").read_text() == 3 * "line\n" and (tmp_path / "new").read_text() == "text"


def test_others_descriptors_and_files_are_used_alone(path):
    def opened():
        return os.open(path, os.O_RDWR)

    for use in os.close, lambda number: os.write(number, b"a"), lambda number: os.read(number, 1), lambda number: os.fdopen(number).close():
        made = [opened(), opened()]
        assert runs_alone(lambda use=use, made=made: use(made.pop()))
    file = open(path, "r+b")
    assert runs_alone(lambda: file.read(1))
    assert runs_alone(lambda: file.raw.tell())
    assert runs_alone(lambda: io.BufferedReader(file.raw).detach())
    numbers = []
    run(lambda: numbers.append(opened()))
    assert runs_alone(lambda: os.read(numbers[0], 1))
    os.close(numbers[0])
    file.close()


# ---- What others write at their commits -------------------------------------------------------------------------------------


def read_whole(path, file):
    with open(path, encoding="latin-1") as opened:
        return opened.read()


def read_on(path, file):
    return file.read(1), file.seek(0)


def append(path, file):
    with open(path, "a") as opened:
        opened.write("")


def shorten(path, file):
    os.truncate(path, 3)


def touch(path, file):
    os.utime(path, (1, 2))


def copy_some(path, file):
    with open(path, "rb") as source, open(os.path.join(os.path.dirname(path), "more", "copy"), "wb") as target:
        os.copy_file_range(source.fileno(), target.fileno(), 1)


def look_through(path, file):
    return [entry.stat().st_size for entry in os.scandir(os.path.dirname(path))]


LOOKS_INTO = {
    "open": read_whole, "read": read_on, "append": append, "scandir": look_through, "stat": lambda path, file: os.stat(path),
    "fstat": lambda path, file: os.fstat(file.fileno()), "getsize": lambda path, file: os.path.getsize(path),
    "truncate": shorten, "utime": touch, "copy_file_range": copy_some,
}  # fmt: skip


@pytest.mark.parametrize("look", LOOKS_INTO.values(), ids=LOOKS_INTO)
def test_who_looks_into_a_file_does_not_see_what_others_write_meanwhile(look, path, tmp_path):
    """Two looks at it tell the same, and the same as what was written to memory besides."""
    (tmp_path / "more").mkdir()
    with open(path, "a") as log, open(tmp_path / "more" / "other", "a") as other, open(path, "rb") as file:

        def write(log=log):
            log.write("line\n")
            log.flush()

        for _ in range(2):
            run(lambda: look(path, file))
            run(write), run(lambda: write(other))
        assert Meeting(lambda: (), write, lambda: look(path, file)).run() == CONFLICT
        assert Meeting(lambda: (), lambda: look(path, file), lambda: write(other)).run() == APART
        if look not in (append, shorten, touch, copy_some):  # these are irrevocable: others wait for them
            assert Meeting(lambda: (), lambda: look(path, file), write).run() == CONFLICT
            assert Meeting(lambda: (), lambda: look(path, file), lambda: look(path, file)).run() == (CONFLICT if look is read_on else APART)


def test_those_that_write_to_one_file_do_so_beside_one_another(path, tmp_path):
    handler = logging.FileHandler(tmp_path / "log")
    log = logging.getLogger("beside")
    log.propagate = False
    log.addHandler(handler)
    with open(path, "a") as one, open(path, "a") as another:

        def write(file=one):
            file.write("line\n")
            file.flush()
            print("printed", file=file)
            log.warning("a line")

        for _ in range(2):
            run(write), run(lambda: write(another))
        for file in one, another:
            assert Meeting(lambda: (), write, lambda file=file: write(file)).run() == APART
    log.removeHandler(handler)
    handler.close()


LINES = b"one\ntwo\nthree\n" * 1000


def compressed_lines(module):
    packed = module.compress(LINES)
    with module.open(io.BytesIO(packed)) as file:
        read = file.readline(), file.read(6), len(file.readlines())
    out = io.BytesIO()
    with module.open(out, "wt") as file:
        file.write("some\ntext")
    with module.open(io.BytesIO(out.getvalue()), "rt") as file:
        return read, file.readline(), list(file)


@pytest.mark.parametrize("name", ["gzip", "bz2", "lzma"])
def test_streams_of_compressed_bytes_run_beside_others(name):
    module = pytest.importorskip(name)
    assert runs_beside_others(compressed_lines, module) == compressed_lines(module)


def test_a_compressed_stream_is_left_open_beside_others():
    def read(packed):
        return gzip.GzipFile(fileobj=io.BytesIO(packed)).read(3)

    assert runs_beside_others(read, gzip.compress(LINES)) == b"one"


def test_a_buffer_around_bytes_of_the_transactions_own_is_used_beside_others():
    def use():
        buffer = io.BufferedReader(io.BytesIO(LINES))
        start = buffer.read(3)
        buffer.flush()
        return start, buffer.readline(), len(buffer.read())

    assert runs_beside_others(use) == (b"one", b"\n", len(LINES) - 4)


def tar_archive(text):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        member = tarfile.TarInfo("lines")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return out.getvalue()


def zip_archive(text):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("lines", text)
    return out.getvalue()


def lines_in_tar(packed):
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        with archive.extractfile("lines") as file:
            read = type(file).__name__, file.name, file.read(3), file.readline(), file.peek(1)[:1], file.tell(), file.seek(4), len(file.readlines())
        return read, list(io.TextIOWrapper(archive.extractfile("lines"))), file.closed


def lines_in_zip(packed):
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        return archive.read("lines"), list(io.TextIOWrapper(archive.open("lines"))), io.TextIOWrapper(archive.open("lines")).read()


@pytest.mark.parametrize("pack, read", [(tar_archive, lines_in_tar), (zip_archive, lines_in_zip)])
def test_files_in_archives_are_read_beside_others(pack, read):
    packed = pack(LINES)
    assert runs_beside_others(read, packed) == read(packed)


def test_files_in_archives_are_what_they_are_one_after_the_other():
    """The bytes are shared, and attempts are rolled back amid them."""
    packs = [{"tar": tar_archive(text), "zip": zip_archive(text)} for text in (LINES, b"line\n" * 3, b"line\n" * 5)]  # which have the time inside

    def read(shelf, n):
        shelf["read"] = shelf.get("read", 0) + n
        return lines_in_tar(shelf["tar"]), len(lines_in_zip(shelf["zip"])[1]), shelf["read"]

    def change(shelf, n):
        shelf.update(packs[n])

    calls = [(read, 1), (change, 1), (read, 2), (read, 3), (change, 2), (read, 4)]
    for seed in range(10):
        testing.check_serializable(lambda: dict(packs[0]), calls, seed=seed, aborts=0.002)


def test_members_and_buffers_of_before_are_read_alone():
    class Buffer(io.BufferedReader):
        pass

    class Begun(io.BufferedReader):
        def __init__(self, raw):
            super().__init__(raw)

    class New(io.BufferedReader):
        def __new__(cls, raw):
            return super().__new__(cls)

    archive = tarfile.open(fileobj=io.BytesIO(tar_archive(LINES)), mode="r:gz")  # noqa: SIM115, it stays open
    kept = archive.extractfile("lines")
    assert not beside_others(kept.readline)[0]
    assert not beside_others(kept.__init__, archive, archive.getmember("lines"))[0]
    for type_ in Buffer, Begun, New:
        assert not beside_others(lambda type_=type_: type_(io.BytesIO(LINES)).read(3))[0]


@pytest.mark.parametrize("name", ["gzip", "bz2", "lzma"])
def test_what_was_compressed_or_read_in_part_before_goes_on_alone(name):
    module = pytest.importorskip(name)
    kept = module.open(io.BytesIO(module.compress(LINES)))
    kept.readline()
    assert not beside_others(kept.readline)[0]
    text = module.open(io.BytesIO(module.compress(LINES)), "rt")
    assert not beside_others(text.readline)[0]
    stream = io.BytesIO(LINES)
    assert not beside_others(io.BufferedReader, stream)[0]
