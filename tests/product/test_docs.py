"""What README.rst and the pages in docs name is there: functions, files, targets of make, modules, options, links."""

import contextlib
import importlib.util
import io
import re
import shutil
import subprocess
import sys
from functools import lru_cache

import pytest

import stm_bench.__main__
from interpreters import ROOT

DOCS = sorted((ROOT / "docs").glob("*.rst"))
PAGES = [ROOT / "README.rst", *DOCS]
MOST_LINES = 120  # of the README

#: folders in which a file may lie that a page names: pages say once of which they tell
BASES = ["", "tornado/stm", "tornado/stm/engine", "stm_bench", "tests"]
#: what looks like a file of this project, and is a command, a name on the machine or of another project
NOT_OURS = {"Tools/cases_generator", "asyncio/queues.py", "asyncio/locks.py", "build/docs", "build/sanitize", "path/metrics", "/stm", "/stm/metrics"}
TEXTS = {page: page.read_text() for page in PAGES}


def ids(page):
    return page.name


def missing_functions(text, sources):
    """The names in ``name()`` form, and in ``Class.name()``, that no source defines or names as a macro."""
    there = set(re.findall(r"\b(\w+)\(", sources))
    return [name for name in re.findall(r"``(?:\w+\.)*(\w+)\(\)``", text) if name not in there]


@lru_cache
def sources():
    files = [path for suffix in ("*.py", "*.c", "*.h") for path in (ROOT / "tornado" / "stm").rglob(suffix)]
    return "\n".join(path.read_text() for path in files)


def missing_files(text):
    """The names in double backticks that have a slash and are no file or folder here."""
    found = []
    for name in re.findall(r"``([\w.~-][\w./<>*-]*/[\w./<>*-]*)``", text):
        ours = name in NOT_OURS or name.startswith("~") or any((ROOT / base / name).exists() for base in BASES)
        if not ours:
            found.append(name)
    return found


def missing_targets(text, makefile):
    wanted = re.findall(r"(?:^|``)\s*(?:PGO=1 )?make ([a-z-]+)", text, re.M)
    there = set(re.findall(r"^([a-z-]+):", makefile, re.M))
    return [target for target in wanted if target not in there]


def is_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


#: modules of others, which may be absent, and those of the reader
OTHERS = {"build", "pip", "pytest", "sphinx", "package.module"}


def missing_modules(text):
    return [name for name in re.findall(r"python[\d.]* -m ([\w.]*\w)", text) if name not in OTHERS and not is_module(name)]


@lru_cache
def options_of(*command):
    """Those that its help lists, and short ones."""
    if command[0] == "stm_bench":  # in this process: there are many of these, and each takes a second to begin
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                status = stm_bench.__main__.command_line([*command[1:], "--help"])
            except SystemExit as end:
                status = end.code
        output, errors = output.getvalue(), errors.getvalue()
    else:
        shown = subprocess.run([sys.executable, "-m", *command, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60)
        status, output, errors = shown.returncode, shown.stdout, shown.stderr
    if "is not installed" in errors:
        pytest.skip(errors.strip())
    assert status == 0, errors
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", output))


def wrong_options(text):
    """(command, option) for each option of tornado.stm, its analyser or stm_bench that it does not have.

    What comes behind the program is the program's.
    """
    found = []
    for module, rest in re.findall(r"python -m (tornado\.stm\.log|tornado\.stm|stm_bench)((?: [^`\n#]*)?)", text):
        words = rest.replace("[", "").replace("]", "").split()
        command = [module]
        if module == "stm_bench" and words:
            command.append(words.pop(0))
        if module == "tornado.stm":  # what is behind the program is not its own
            programs = [i for i, word in enumerate(words) if word.endswith(".py") or word == "-m"]
            words = words[: programs[0] + 1] if programs else words
        found += [(" ".join(command), word) for word in words if re.match(r"--?[a-z]", word) and word not in options_of(*command)]
    return found


@lru_cache
def options_of_all():
    """What any command line here has: options stand alone in a text, too."""
    files = [path for folder in ("tornado/stm", "stm_bench", "tests") for path in (ROOT / folder).rglob("*.py")]
    return set(re.findall(r'\badd(?:_argument)?\(\s*(?:"-\w", )?"(--[\w-]+)"', "\n".join(path.read_text() for path in files)))


def unknown_options(text):
    """Options in double backticks, such as ``--explain``, that none of our commands has."""
    return [option for option in re.findall(r"``(--[a-z][\w-]*)", text) if option not in options_of_all()]


def broken_links(text, folder):
    targets = re.findall(r"<([^<>\s]+)>`_", text)
    return [target for target in targets if "://" not in target and not (folder / target).exists()]


def strange_documents(text):
    """Targets of :doc: that are no page (the build warns of these too, where it can be made)."""
    return [name for name in re.findall(r":doc:`(\w+)`", text) if not (ROOT / "docs" / f"{name}.rst").exists()]


def swallowed_headings(text):
    """Headings right behind a paragraph: they would be its last line, without a warning."""
    return re.findall(r"\n(?![=-]{3})[^\n ][^\n]*\n(\S[^\n]*)\n(?:={4,}|-{4,})\n", text)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_what_a_page_names_is_there(page):
    text = TEXTS[page]
    assert missing_files(text) == []
    assert missing_targets(text, (ROOT / "Makefile").read_text()) == []
    assert missing_modules(text) == []
    assert wrong_options(text) == []
    assert unknown_options(text) == []
    assert strange_documents(text) == []
    assert swallowed_headings(text) == []


@pytest.mark.parametrize("name", ["design", "extending"])
def test_functions_exist(name):
    text = (ROOT / "docs" / f"{name}.rst").read_text()
    assert len(re.findall(r"``[\w.]+\(\)``", text)) > (20 if name == "design" else 1)
    assert missing_functions(text, sources()) == []


def test_the_readme_is_short_and_its_links_lead_somewhere():
    readme = TEXTS[ROOT / "README.rst"]
    assert len(readme.splitlines()) <= MOST_LINES
    assert len(re.findall(r"<docs/\w+\.rst>`_", readme)) > 10
    assert broken_links(readme, ROOT) == []
    assert re.findall(r":[a-z]+:`", readme) == []  # an index knows no roles of Sphinx


def rows(text):
    """{workload: its figures} of each table whose lines begin with the name of a workload, in the order of the text."""
    found = {}
    for name, rest in re.findall(r"^ *([a-z-]+)  +(.*\d\.\d\d.*)$", text, re.M):
        found.setdefault(name, re.findall(r"(?<![\d.])\d+\.\d\d(?![\d.])", rest))
    return found


def test_the_figures_of_the_readme_are_measured_ones():
    few, all_of_them = rows(TEXTS[ROOT / "README.rst"]), rows((ROOT / "docs" / "workloads.rst").read_text().split("All workloads:", 1)[1])
    assert len(few) == 8
    for name, figures in few.items():
        assert [figure for figure in figures if figure not in all_of_them[name]] == [], name


def test_every_page_is_linked_from_the_readme():
    assert [page.name for page in DOCS if page.name != "index.rst" and f"docs/{page.name}>" not in TEXTS[ROOT / "README.rst"]] == []


def test_the_pages_are_about_the_project_alone():
    for page, text in TEXTS.items():
        assert re.findall(r"/(?:tmp|work|root|home)/\S*", text) == [], page.name


def test_the_checks_find_what_is_wrong():
    assert missing_functions("``no_such_function()`` and ``tx_begin()``", sources()) == ["no_such_function"]
    assert missing_files("``core/orec.c``, ``core/orek.c``, ``docs/nothing.rst``") == ["core/orek.c", "docs/nothing.rst"]
    assert missing_targets("    make nothing\n``make test`` ``make neither``", "test: setup\n") == ["nothing", "neither"]
    assert missing_modules("python -m tornado.stm.lock, python -m tornado.stm.log") == ["tornado.stm.lock"]
    assert wrong_options("``python -m tornado.stm --logs x app.py --mine`` ``python -m stm_bench all --only x --none``") == [
        ("tornado.stm", "--logs"), ("stm_bench all", "--none"),
    ]  # fmt: skip
    assert unknown_options("``--explain`` ``--explains``") == ["--explains"]
    assert broken_links("`a <docs/index.rst>`_ `b <docs/none.rst>`_", ROOT) == ["docs/none.rst"]
    assert swallowed_headings("\nText.\nHeading\n=======\n\nText.\n\nAnother\n-------\n") == ["Heading"]
    assert strange_documents(":doc:`index` :doc:`none`") == ["none"]


def test_each_advice_and_kind_of_conflict_has_a_remedy():
    from tornado.stm import log

    remedies = " ".join((ROOT / "docs" / "remedies.rst").read_text().split())
    kinds = [name for name, _ in log.C7_EVENTS.values() if name.startswith("CONTENTION_") and name[11:] not in ("CALLERS", "HANDLERS", "OBJECT")]
    assert [kind for kind in kinds if f"STM_{kind}" not in remedies] == []
    assert len(log.ADVICE) == 10, "docs/remedies.rst has an entry for each"


def unknown_reasons(text, sources):
    """Terms of a list of reasons for running alone that no source gives."""
    terms = [term for line in re.findall(r"(?m)^``.*``$", text) for term in re.findall(r"``(.+?)(?: \.\.\.)?``", line)]
    assert terms
    return [term for term in terms if f'"{term}' not in sources]


def test_the_reasons_for_running_alone_are_those_of_the_sources():
    remedies = (ROOT / "docs" / "remedies.rst").read_text()
    alone = remedies.split("When something runs alone\n=", 1)[1].split("When it is no conflict\n=", 1)[0]
    assert unknown_reasons(alone, sources()) == []
    assert unknown_reasons("``call of ...``, ``call for ...``", sources()) == ["call for"]


def test_the_pages_build_without_a_warning(tmp_path):
    pytest.importorskip("sphinx", reason="sphinx is missing")
    pytest.importorskip("furo", reason="furo is missing")
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", docs)
    for name in ("pyproject.toml", "tornado/stm/engine/README.rst"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-n", "--keep-going", "-b", "html", docs, tmp_path / "html"]
    built = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (built.returncode, built.stderr) == (0, "")
    names = set(re.findall(r'id="(tornado\.stm\.[\w.]+)"', (tmp_path / "html" / "api.html").read_text()))
    assert {"tornado.stm.run", "tornado.stm.transaction.atomic", "tornado.stm.transaction.clock", "tornado.stm.conflictlog.start"} <= names
    assert {name for name in names if name.count("tornado") > 1} == set()
    assert {name for name in names if name.startswith("tornado.stm.conflictlog.")} == {
        f"tornado.stm.conflictlog.{name}" for name in ("LIMIT", "start", "stop", "path")
    }
