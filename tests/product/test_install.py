"""What a stranger gets: the wheels and the source distribution, installed where there is no compiler and no source of CPython."""

import http.client
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version

import pytest

import tutorial
from interpreters import FREE_THREADED, GIL, ROOT, needs_gil, parallel_only, without_report
from tornado.stm import core

pytest.importorskip("setuptools", "77")
tags = pytest.importorskip("packaging.tags")
utils = pytest.importorskip("packaging.utils")

#: not what was made in the checkout; and nothing is made in it, as other tests may do so at the same time
MADE = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "pypystm-lib", "*.egg-info", "*.so", "__pycache__", ".pytest_cache", ".hypothesis", "bench.*"
)

#: `setup.py` with the engine that this interpreter has already, in the place of one that it compiles in minutes
WITH_THE_ENGINE = """
import runpy, sys

sys.path.insert(0, "tornado/stm")
from interpreter import build

engine = sys.argv.pop(1)
build.build = build.build_guided = lambda *args, **options: engine
runpy.run_path("setup.py", run_name="__main__")
"""

PYTEST = sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"

APP = """
import asyncio
import tornado.web
from tornado.stm import core

class Main(tornado.web.RequestHandler):
    def get(self):
        self.write({"compiled": core.COMPILED, "loop": type(asyncio.get_running_loop()).__name__, "from": core.__file__})

async def main():
    server = tornado.httpserver.HTTPServer(tornado.web.Application([("/", Main)]))
    [socket] = tornado.netutil.bind_sockets(0, "127.0.0.1")
    server.add_socket(socket)
    print("listening", socket.getsockname()[1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def run(*command, cwd, status=0, env=None):
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == status, done
    return done


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution's file."""
    checkout, dist = tmp_path_factory.mktemp("made") / "checkout", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT, checkout, symlinks=True, ignore=MADE)
    run(sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", dist, cwd=checkout)
    [made] = dist.iterdir()
    return made


@pytest.fixture(scope="module")
def unpacked(sdist, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    [made] = folder.iterdir()
    return made


def wheel(unpacked, dist, **environment):
    shutil.rmtree(unpacked / "build", ignore_errors=True)
    env = os.environ | {"STM_SANITIZE": "", "PGO": "0", "STM_SOURCE": "given"} | environment
    engine = core._engine.__file__ if core.COMPILED else ""
    run(sys.executable, "-c", WITH_THE_ENGINE, engine, "--quiet", "bdist_wheel", "--dist-dir", dist, cwd=unpacked, env=env)


@pytest.fixture(scope="module")
def dist(sdist, unpacked):
    """The folder of all that `make wheels` makes, with one engine; of an interpreter with a GIL, without one."""
    if FREE_THREADED:
        assert core.COMPILED
        wheel(unpacked, sdist.parent)
    wheel(unpacked, sdist.parent, STM_PURE="1")
    return sdist.parent


# ---- What is in them ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="not a checkout")
def test_the_source_distribution_holds_the_checkout(sdist):
    def listed(*which):
        return {*run("git", "ls-files", *which, cwd=ROOT).stdout.splitlines()}

    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if not archive.getmember(name).isdir()}
    tracked = {name for name in listed() if os.path.lexists(ROOT / name)}
    assert tracked - names == set()
    generated = {name for name in names if name in ("PKG-INFO", "setup.cfg") or name.startswith("tornado_stm.egg-info/")}
    assert names - generated - tracked - listed("--others", "--exclude-standard") == set()


def test_tests_run_in_the_unpacked_source_distribution(unpacked):
    """The analyser, a link in a checkout, is there by both names, and the tests find what they need beside themselves."""
    shutil.rmtree(unpacked / "build", ignore_errors=True)
    script = (unpacked / "scripts" / "print_stm_log.py").read_text()
    assert (unpacked / "tornado" / "stm" / "log.py").read_text() == script == (ROOT / "scripts" / "print_stm_log.py").read_text()
    for name in ("setup.sh", "build_cpython.sh", "wheels.sh", "sanitize.sh", "print_stm_log.py"):
        assert os.access(unpacked / "scripts" / name, os.X_OK)
    assert "wheels" in run("make", "help", cwd=unpacked).stdout
    tests = "tests/engine/test_layers.py", "tests/loop/test_launcher.py"
    some = run(*PYTEST, *tests, "-k", "layers or attributes or other_kinds", cwd=unpacked).stdout
    assert re.search(r"\b\d{2,} passed", some) and "failed" not in some, some


@pytest.mark.long
def test_all_tests_are_found_in_the_unpacked_source_distribution(unpacked):
    """And all that they import: pytest's status is 2 otherwise."""
    everything = run(*PYTEST, "--collect-only", "tests", cwd=unpacked).stdout
    assert int(re.search(r"(\d+)(?:/\d+)? tests collected", everything)[1]) > 5000


def test_the_wheels_hold_all_but_what_builds_the_engine(dist):
    package = ROOT / "tornado" / "stm"
    made = re.compile(r"(^|/)__pycache__/|\.(so|py[co])$|^(engine|interpreter)/")
    files = [str(file.relative_to(package)) for file in package.rglob("*") if file.is_file()]
    wanted = {f"tornado/stm/{name}" for name in files if not made.search(name)}
    for file in dist.glob("*.whl"):
        with zipfile.ZipFile(file) as archive:
            names = {name for name in archive.namelist() if ".dist-info/" not in name}
        engines = {name for name in names if name.endswith(".so")}
        assert names - engines == wanted
        assert len(engines) == ("-abi3-" not in file.name)


def tags_of(minor, abi, architecture="x86_64"):
    """The tags that pip takes on such an interpreter on a recent Linux, the best first."""
    platforms = [f"manylinux_2_{glibc}_{architecture}" for glibc in range(39, 4, -1)] + [f"linux_{architecture}"]
    own = tags.cpython_tags((3, minor), abis=[abi], platforms=platforms)
    return [*own, *tags.compatible_tags((3, minor), f"cp3{minor}", platforms)]


def chosen(dist, supported):
    """Which wheel pip takes: "engine", "pure" or None, and then the source."""
    found = []
    for file in dist.glob("*.whl"):
        ranks = [supported.index(tag) for tag in utils.parse_wheel_filename(file.name)[3] if tag in supported]
        found += [(min(ranks), "pure" if "-abi3-" in file.name else "engine")] if ranks else []
    return min(found)[1] if found else None


def test_pip_takes_the_pure_wheel_on_all_with_a_gil_and_on_no_other(dist):
    for architecture in ("x86_64", "aarch64"):
        assert {chosen(dist, tags_of(minor, f"cp3{minor}", architecture)) for minor in range(11, 16)} == {"pure"}
    assert chosen(dist, tags_of(10, "cp310")) is None
    assert {chosen(dist, tags_of(minor, f"cp3{minor}t")) for minor in (13, 15)} == {None}
    assert chosen(dist, tags_of(14, "cp314t", "aarch64")) is None
    pypy = tags.generic_tags("pp311", ["pypy311_pp73"], ["manylinux_2_17_x86_64", "linux_x86_64"])
    assert chosen(dist, [*pypy, *tags.compatible_tags((3, 11), "pp311", ["linux_x86_64"])]) is None


@parallel_only
def test_pip_takes_the_wheel_with_the_engine_where_that_belongs(dist):
    assert chosen(dist, tags_of(*sys.version_info[1:2], f"cp3{sys.version_info[1]}t")) == "engine"


@parallel_only
def test_the_engine_needs_no_more_than_its_tag_says(dist):
    """No newer C library, and none beside it."""
    [file] = dist.glob("*t-manylinux_*_x86_64.whl")
    glibc = int(re.search(r"manylinux_2_(\d+)_x86_64", file.name)[1])
    done = run("readelf", "--wide", "--dynamic", "--version-info", core._engine.__file__, cwd=ROOT)
    assert max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", done.stdout)) == glibc
    libraries = {*re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout)}
    assert "libc.so.6" in libraries <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2"}


def test_the_metadata_names_no_place_that_is_not_there(dist):
    """The page of an index is the README; the links on it lead out of the project or nowhere."""
    [file] = dist.glob("*-abi3-*.whl")
    with zipfile.ZipFile(file) as archive:
        [metadata] = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]
    assert re.search(r"^Description-Content-Type: text/x-rst$", metadata, re.MULTILINE)
    assert not re.search(r"^(?:Project-URL|Home-page|Author-email)", metadata, re.MULTILINE)
    for name in ("Summary", "Keywords", "Classifier", "Requires-Python"):
        assert re.search(rf"^{name}: \S", metadata, re.MULTILINE), name


# ---- Installed ------------------------------------------------------------------------------------------------------------


class Place:
    """A virtual environment without a compiler, and a folder beside it.

    Args:
        folder: for both.
        python: what it is made from.
        dist: the folder that tornado-stm is installed from.
    """

    def __init__(self, folder, python, dist):
        self.folder, self.bin = folder, folder / "venv" / "bin"
        run(python, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
        (folder / "empty").mkdir()
        (folder / "app.py").write_text(APP)
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python", "--disable-pip-version-check", "install", "--quiet"]
        got = subprocess.run([*pip, "tornado>=6.5,<6.7"], cwd=folder, capture_output=True, text=True)
        if got.returncode:
            pytest.skip(f"there is no tornado to install beside: {got.stderr.splitlines()[-1]}")
        unwanted = ("STM_", "PYTHON", "PYPYSTM", "VIRTUAL_ENV", "PGO", "CC")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        self.env |= {"PATH": str(self.bin), "CC": "/nonexistent", "XDG_CACHE_HOME": str(folder / "empty"), "PIP_NO_INDEX": "1"}
        assert not shutil.which("gcc", path=self.env["PATH"])
        self.pip = run(*pip, "--find-links", dist, "tornado-stm", cwd=folder, env=self.env)

    def python(self, *arguments):
        return run(self.bin / "python", *arguments, cwd=self.folder, env=self.env)

    def ask(self, *options):
        """What the application answers, run with these options, and what it wrote on standard error."""
        command = [self.bin / "python", "-m", "tornado.stm", *options, "app.py"]
        with subprocess.Popen(command, cwd=self.folder, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
            try:
                port = int(server.stdout.readline().split()[1])
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/")
                answer = connection.getresponse().read().decode()
                connection.close()
                server.terminate()
                return answer, without_report(server.communicate(timeout=60)[1])
            finally:
                server.kill()


def version_line(python, what):
    return rf"tornado-stm {re.escape(version('tornado-stm'))} \(Python {re.escape(python)}{what}; tornado 6\.\d+(\.\d+)*\)\n"


@pytest.fixture(scope="module")
def installed(dist, tmp_path_factory):
    """The Place with the wheel that has the engine."""
    return Place(tmp_path_factory.mktemp("installed"), sys.executable, dist)


@parallel_only
def test_with_the_engine(installed):
    place, own = installed, platform.python_version()
    [tag] = (place.bin.parent / "lib").glob("python3*/site-packages/tornado_stm-*.dist-info/WHEEL")
    assert re.search(r"^Tag: cp3\d+-cp3\d+t-manylinux_2_\d+_x86_64$", tag.read_text(), re.MULTILINE)
    line = place.python("-m", "tornado.stm", "--version").stdout
    assert re.fullmatch(version_line(own, f" free-threading; engine: compiled for {own}"), line), line
    answer, errors = place.ask("-j", "2", "--log", "conflicts")
    assert '"compiled": true' in answer and f'"from": "{place.bin.parent}' in answer, answer
    assert "one thread" not in errors, errors
    assert "transactions" in place.python("-m", "tornado.stm.log", "conflicts").stdout


@parallel_only
@tutorial.needs_siege
def test_the_tutorial_is_followed_with_what_is_installed(installed):
    counted, visits, report, data = tutorial.follow(installed.folder, tutorial.SOURCE, installed.bin / "python", installed.env)
    assert visits >= counted > 0
    tutorial.check_first(report, data)


@needs_gil
def test_with_a_gil(dist, tmp_path):
    place = Place(tmp_path, GIL, dist)
    [tag] = (place.bin.parent / "lib").glob("python3*/site-packages/tornado_stm-*.dist-info/WHEEL")
    assert "Tag: cp311-abi3-" in tag.read_text() and not [*tag.parent.parent.glob("tornado/stm/*.so")]
    own = place.python("-c", "import platform; print(platform.python_version())").stdout.strip()
    line = place.python("-m", "tornado.stm", "--version").stdout
    assert re.fullmatch(version_line(own, f"; engine: serial, as Python {own} has a GIL"), line), line
    answer, errors = place.ask("-j", "2")
    assert '"compiled": false' in answer and f'"from": "{place.bin.parent}' in answer, answer
    assert f"tornado.stm: Python {own} has a GIL: transactions run on one thread\n" in errors
    assert "usage" in place.python("-m", "tornado.stm.log", "--help").stdout


def test_the_version_without_an_engine(tmp_path):
    """As where CPython was updated, and from a copy that nothing has installed."""
    shutil.copytree(ROOT / "tornado", tmp_path / "tornado", ignore=MADE)
    start = ("import sys, importlib.metadata as m, runpy, tornado; tornado.__path__.insert(0, %r); m.distributions = None;"
             "m.Distribution.from_name = lambda name: exec('raise m.PackageNotFoundError(name)'); sys.argv = ['x', '--version'];"
             "runpy.run_module('tornado.stm', run_name='__main__')" % str(tmp_path / "tornado"))
    env = {name: value for name, value in os.environ.items() if name != "STM_ENGINE"}
    [line] = run(sys.executable, "-c", start, cwd=tmp_path, env=env).stdout.splitlines()
    why = "there is no engine for CPython" if FREE_THREADED else "Python .* has a GIL"
    assert re.match(rf"tornado-stm, not installed \(Python 3\S+( free-threading)?; engine: serial, as {why}", line), line


# ---- Where it cannot be installed -----------------------------------------------------------------------------------------


def refused(*, implementation="CPython", version=sys.version_info[:3]):
    """What `setup.py` says on such an interpreter, to pip's first question."""
    program = ("import platform, runpy, setuptools, sys\n"
               f"platform.python_implementation = lambda: {implementation!r}\n"
               f"sys.version_info, sys.argv = {version!r}, ['setup.py', '--version']\n"
               "runpy.run_path('setup.py', run_name='__main__')")
    done = run(sys.executable, "-c", program, cwd=ROOT, status=2)
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    return line


INSTEAD = ": use a free-threaded CPython 3.14 (python3.14t), or for one thread a CPython 3.11 or later with a GIL"


def test_another_python():
    old = refused(version=(3, 10, 13))
    assert old == "setup: tornado-stm needs Python 3.11, and this is CPython 3.10" + INSTEAD
    other = refused(implementation="PyPy")
    assert other == "setup: tornado-stm is for CPython, and this is PyPy {}.{}".format(*sys.version_info) + INSTEAD


@parallel_only
def test_an_older_free_threaded_one():
    line = refused(version=(3, 13, 1))
    assert line == "setup: the engine needs CPython 3.14, and this is a free-threaded CPython 3.13" + INSTEAD


@parallel_only
def test_no_compiler(unpacked, tmp_path):
    (tmp_path / "Include").mkdir()
    (tmp_path / "Include" / "patchlevel.h").write_text(f'#define PY_VERSION              "{platform.python_version()}"\n')
    env = os.environ | {"PATH": str(tmp_path), "STM_SOURCE": str(tmp_path), "STM_SANITIZE": ""}
    for pgo in "01":
        done = run(sys.executable, "setup.py", "--quiet", "build_ext", cwd=unpacked, status=2, env=env | {"PGO": pgo})
        assert (done.stdout, done.stderr.splitlines()) == ("", [
            "setup: there is no gcc here to compile the engine with: install gcc and libc6-dev, or what they are called here, or take the wheel"
        ])  # fmt: skip


#: in the place of .venv's interpreter and of what gets CPython's sources
FAKE_PYTHON = """#!/bin/sh
case $1 in
    -c) echo 3.14.5 ;;
    -m) while [ "$1" != --wheel-dir ]; do shift; done; echo "$STM_SOURCE $PGO" >"$2/tornado_stm-1-$STM_PURE.whl" ;;
    setup.py) while [ "$1" != --dist-dir ]; do shift; done; touch "$2/tornado_stm-1.tar.gz" ;;
esac
"""
FAKE_SOURCES = """#!/bin/sh
case $2 in
    list) printf '3.14.6\\n3.14.4\\n' ;;
    %s) echo "setup: no $2" >&2; exit 2 ;;
    *) echo "/src/$2" ;;
esac
"""


@pytest.mark.parametrize("missing, said, status", [
    ("none", [], 0),
    ("3.14.4", ["setup: no 3.14.4", "wheels: without the source of CPython 3.14.4, the wheel has no engine for it"], 0),
    ("3.14.5", ["setup: no 3.14.5", "wheels: without the source of CPython 3.14.5, which .venv runs on, there is no wheel"], 2),
])  # fmt: skip
def test_a_source_that_cannot_be_had_is_one_line(tmp_path, missing, said, status):
    for name, text in {".venv/bin/python": FAKE_PYTHON, "scripts/build_cpython.sh": FAKE_SOURCES % missing}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    shutil.copy2(ROOT / "scripts" / "wheels.sh", tmp_path / "scripts")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "tornado_stm-0-old.whl").touch()
    env = {name: value for name, value in os.environ.items() if name not in ("STM_SOURCE", "PGO")}
    done = run(tmp_path / "scripts" / "wheels.sh", cwd=tmp_path, status=status, env=env)
    errors = done.stderr.splitlines()
    assert errors[:len(said)] == said
    made = {file.name for file in (tmp_path / "dist").iterdir()}
    if status:
        assert len(errors) == len(said) and made == {"tornado_stm-0-old.whl"}
    else:
        assert made == {"tornado_stm-1-0.whl", "tornado_stm-1-1.whl", "tornado_stm-1.tar.gz"}
        sources = [f"/src/{version}" for version in ("3.14.4", "3.14.5", "3.14.6") if version != missing]
        assert (tmp_path / "dist" / "tornado_stm-1-0.whl").read_text() == ":".join(sources) + " 1\n"


#: in the place of a free-threaded interpreter, and of that of the environment that it makes
FAKE_FREE_THREADED = """#!/bin/sh
case $1,$2 in
    -I,*) printf '001.003.014.007\\t%s\\n' "$0" ;;
    -c,*) echo 3.14.7 ;;
    -m,venv) mkdir -p "$4/bin"; ln -sf "$0" "$4/bin/python"; touch "$4/bin/pip"; echo "made $4" >>calls ;;
    -m,pip) if [ ! -e "${0%/*}/pip" ]; then echo "No module named pip" >&2; exit 1; fi; [ "$3" != install ] || echo filled >>calls ;;
esac
"""
NEEDED = "bash cat cut dirname find flock grep ln mkdir mktemp readlink rm sha256sum sh sort tail touch cp xargs".split()


def test_set_up_says_where_it_cannot_write(tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy2(ROOT / "scripts" / "setup.sh", tmp_path / "scripts")
    no_folder = tmp_path / "scripts" / "setup.sh"
    done = run("bash", "scripts/setup.sh", "engine", cwd=tmp_path, status=2, env=os.environ | {"XDG_CACHE_HOME": str(no_folder)})
    assert done.stderr == f"setup: cannot write to {no_folder}/tornado-stm\n"


@pytest.mark.skipif(sys.platform != "linux", reason="the script is for Linux")
@pytest.mark.parametrize("before", ["nothing", "interrupted", "made by the user"])
def test_set_up_goes_on_after_one_that_was_interrupted(tmp_path, before):
    """Its environment has an interpreter then, but no pip; one that is whole is taken as it is."""
    checkout, path = tmp_path / "a checkout", tmp_path / "bin"
    for name in ("scripts", "tornado/stm/engine", "tornado/stm/interpreter", ".venv/bin"):
        (checkout / name).mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "tornado/stm/interpreter/build.py"):
        (checkout / name).touch()
    shutil.copy2(ROOT / "scripts" / "setup.sh", checkout / "scripts")
    path.mkdir()
    for name in NEEDED:
        (path / name).symlink_to(shutil.which(name))
    fake = path / "free"
    fake.write_text(FAKE_FREE_THREADED)
    fake.chmod(0o755)
    if before != "nothing":
        (checkout / ".venv" / "bin" / "python").symlink_to(fake)
    if before == "made by the user":
        (checkout / ".venv" / "bin" / "pip").touch()
    env = {"PATH": str(path), "HOME": str(tmp_path), "STM_PYTHON": str(fake), "STM_SOURCE": "given"}
    run("bash", "scripts/setup.sh", cwd=checkout, env=env)
    made = [] if before == "made by the user" else ["made .venv"]
    assert (checkout / "calls").read_text().splitlines() == made + ["filled"] * 2
    run("bash", "scripts/setup.sh", cwd=checkout, env=env)
    assert (checkout / "calls").read_text().splitlines() == made + ["filled"] * 2, "nothing twice"


def test_what_pure_may_be(unpacked):
    done = run(sys.executable, "setup.py", "--quiet", "build_ext", cwd=unpacked, status=2, env=os.environ | {"STM_PURE": "yes"})
    assert done.stderr == "setup: STM_PURE is 'yes': it can be 0 or 1\n"
