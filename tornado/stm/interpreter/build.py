"""Build the engine: its own C code, and the evaluation loop that is made from CPython's source of one exact version.

`setup.py` calls this; what of an earlier build is still right is kept.
"""

import concurrent.futures
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig

from . import generate, sources, symbols
from .generate import write

ENGINE = pathlib.Path(__file__).parent.parent / "engine"
HERE = pathlib.Path(__file__).parent

COMMON = """-std=gnu11 -O3 -fPIC -fvisibility=hidden -fno-strict-aliasing -pthread -DPy_BUILD_CORE_MODULE""".split()
#: a chain of tests ends at the first that decides, which most often is the first: a hundredth of a transaction's instructions; gcc 9
SHORT_CIRCUIT = "--param=logical-op-non-short-circuit=0"
#: CPython's own code, as its makefile has it compiled; what the loop does not need is left out when it is linked
BORROWED = "-w -DNDEBUG -fno-plt -fsemantic-interposition -fno-strict-overflow -ffunction-sections -fdata-sections".split()
#: the loop once more, without the barriers that do nothing outside of transactions and in exclusive ones.  Where its instructions begin decides
#: what a short loop costs: by chance a loop over a range took 1.0 to 1.3 times what it takes on the interpreter's own; with these 1.05.
ALONE = "loop_evaluate_alone"
ALONE_FLAGS = ["-falign-labels=64:32", "-DSTM_ALONE", f"-Dloop_evaluate={ALONE}"]
#: a thread's transaction is one load away, without a call; the assertions are in the builds with a sanitizer
OWN = "-Wall -Werror=implicit-function-declaration -DNDEBUG -fno-semantic-interposition -ftls-model=initial-exec".split()
LINKED = "-shared -pthread -lm -Wl,--gc-sections -Wl,-Bsymbolic-functions".split()
#: for all files, CPython's too: to count how often each branch goes which way, on several threads; and to be compiled for that.  What the
#: training has not run is compiled as if there had been none.
COUNTED = ["-fprofile-generate={profile}", "-fprofile-update=atomic"]
GUIDED = ["-fprofile-use={profile}", "-fprofile-partial-training", "-fprofile-correction", "-Wno-coverage-mismatch"]

#: what the tags of wheels promise of every Linux of that age, of the libraries that the engine is linked with
LIBRARIES = {"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libpthread.so.0"}
NO_COMPILER = "there is no {} here to compile the engine with: install gcc and libc6-dev, or what they are called here, or take the wheel"


class BuildError(Exception):
    """Why there can be no engine, and what to do."""


def file_name(version):
    """The engine's file for this version of CPython, such as "3.14.7"."""
    return f"_engine-{version}{sysconfig.get_config_var('EXT_SUFFIX')}"


def check(source):
    """Can an engine be built here from that source of CPython?  Return the source's version.

    Raises:
        BuildError: it cannot.
    """
    machine = platform.machine(), sys.platform
    if machine != ("x86_64", "linux"):
        raise BuildError(f"the engine is for Linux on x86_64, and this is {machine[1]} on {machine[0]}")
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BuildError("this interpreter has a GIL: it needs no engine")
    try:
        text = (source / "Include" / "patchlevel.h").read_text()
    except OSError:
        raise BuildError(f"{source} is not CPython's source: it has no Include/patchlevel.h") from None
    version = re.search(r'#define PY_VERSION\s+"([^"]+)"', text)[1]
    if version.split(".")[:2] != platform.python_version().split(".")[:2]:
        raise BuildError(f"{source} is that of CPython {version}, and this is {platform.python_version()}")
    return version


def is_right(target, command):
    """Has this command made the object file from what the sources are now?"""
    made_by, needs = target.with_suffix(".command"), target.with_suffix(".d")
    if not (target.exists() and needs.exists() and made_by.exists() and made_by.read_text() == " ".join(command)):
        return False
    after = needs.read_text().replace("\\\n", " ").partition(": ")[2]
    names = [name.replace("\\ ", " ") for name in re.findall(r"(?:\\.|\S)+", after)]  # as make reads them: a\ b is one
    made = target.stat().st_mtime_ns
    return all(os.path.exists(name) and os.stat(name).st_mtime_ns < made for name in names)


def run(command):
    """Run a compiler, or what it has made.

    Raises:
        BuildError: what it says.
    """
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stderr}")


def accepts(compiler, flag):
    """Does this compiler know the flag?"""
    return subprocess.run([compiler, flag, "-E", "-x", "c", os.devnull], capture_output=True).returncode == 0


def compile_object(target, command, borrowed=False, keep=None):
    """Compile one source file, if its object file is not right yet; see `symbols.undefine`."""
    if is_right(target, command):
        return
    target.with_suffix(".command").unlink(missing_ok=True)
    run([*command, "-MMD", "-MF", str(target.with_suffix(".d"))])
    if borrowed:
        symbols.undefine(target, keep)
    target.with_suffix(".command").write_text(" ".join(command))


def make_sources(source, made):
    """Write what is made from CPython's source; return the names of the C files among it.

    Raises:
        BuildError: this version is not what the tables say.
    """
    made.mkdir(parents=True, exist_ok=True)
    names = [name for name in sources.CHANGED if "/" in name]
    try:
        write(made / "generated_cases.c.h", sources.changed("generated_cases", generate.generate(source, made)))
        write(made / "ceval_macros.h", sources.changed("ceval_macros", (source / "Python" / "ceval_macros.h").read_text()))
        for name in names:
            text = sources.changed(name, (source / f"{name}.c").read_text())
            if name == "Python/ceval":
                text = text.replace('#include "pycore_stackref.h"', '#include "pycore_stackref.h"\n#include "loop.h"', 1)
            write(made / f"{pathlib.Path(name).name}.c", text)
    except ValueError as e:
        raise BuildError(f"not known how to build a loop for this version: {e}") from None
    write(made / "pyconfig.h", pathlib.Path(sysconfig.get_config_h_filename()).read_text())
    return [f"{pathlib.Path(name).name}.c" for name in names]


def manylinux(modules):
    """The tag of the systems that can load these modules, such as "manylinux_2_34_x86_64"; None if they need more than the C library."""
    newest = (2, 5)
    for module in modules:
        needed, versions = symbols.needs(module)
        if not needed <= LIBRARIES:
            return None
        newest = max(newest, *versions)
    return "manylinux_{}_{}_x86_64".format(*newest)


def is_guided():
    """Is an engine for this interpreter to be profile-guided?  If the interpreter is, which would be faster than its loop else."""
    return "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")


def own_version_first(sources):
    """These folders of sources, that of this interpreter's version before the others: `build_guided` has to begin with it."""

    def is_other(source):
        try:
            return check(pathlib.Path(source)) != platform.python_version()
        except BuildError:
            return True  # `build` says why

    return sorted(sources, key=is_other)


def lend_profile(profile, version):
    """Let the objects of the engine for `version` have what the training has counted in those for this interpreter's version.

    Where a function of CPython's is another one there, the compiler sees that, and compiles it as if it had not been run.

    Returns:
        Has anything been counted?
    """
    own, counted = f"{os.sep}{platform.python_version()}{os.sep}", list(profile.rglob("*.gcda"))
    for path in counted:
        before, here, behind = str(path).rpartition(own)
        if here:
            lent = pathlib.Path(f"{before}{os.sep}{version}{os.sep}{behind}")
            lent.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, lent)
    return bool(counted)


def build_guided(source, output, compiler="gcc"):
    """Build the module twice: one that counts, which runs the training, and one that is compiled for what it has counted.

    One for another version than this interpreter's cannot run here: it is built once, for what that of this interpreter's version has
    counted, if there has been one.

    Args, returned value and errors: those of `build`.
    """
    version, own = check(pathlib.Path(source)), platform.python_version()
    profile = pathlib.Path(output).resolve() / "profile"
    counts, guided = ([flag.format(profile=profile) for flag in flags] for flags in (COUNTED, GUIDED))
    if version == own:
        shutil.rmtree(profile, ignore_errors=True)
        counting = build(source, output, everywhere=counts, compiler=compiler)
        for threads in ("1", "2"):
            run([sys.executable, str(HERE / "training.py"), str(counting), threads])
    elif not lend_profile(profile, version):
        guided = ()
    return build(source, output, everywhere=guided, compiler=compiler)


def build(source, output, flags=(), compiler="gcc", everywhere=()):
    """Build the extension module for one version of CPython.

    Args:
        source: the folder of that version's unpacked source.
        output: the folder for what is made on the way, which another build may use again, and for the module.
        flags: more for the compiler, of the engine's own files, and for the linker.
        everywhere: more for the compiler, of all files, and for the linker.

    Returns:
        The path of the module.

    Raises:
        BuildError: see there.
    """
    source, output = pathlib.Path(source).resolve(), pathlib.Path(output).resolve()
    version = check(source)
    if shutil.which(compiler) is None:
        raise BuildError(NO_COMPILER.format(compiler))
    output /= version
    common = [*COMMON, *everywhere]
    own = [*OWN, *([SHORT_CIRCUIT] if accepts(compiler, SHORT_CIRCUIT) else [])]
    made, objects = output / "made", output / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    names = make_sources(source, made)
    include = source / "Include"
    theirs = [f"-I{path}" for path in (
        made, ENGINE, HERE, include / "internal", include / "internal" / "mimalloc", source, include, source / "Python"
    )]
    ours = [f"-I{path}" for path in (made, ENGINE, HERE, include, include / "internal")]
    jobs = []
    for path in [*(source / f"{name}.c" for name in sources.BORROWED), *(made / name for name in names)]:
        jobs.append((f"cpython_{path.stem}", [*common, *BORROWED, *theirs], path, {"borrowed": True}))
    again = {"borrowed": True, "keep": ALONE}
    jobs.append(("cpython_ceval_alone", [*common, *BORROWED, *ALONE_FLAGS, *theirs], made / "ceval.c", again))
    for path in [*sorted(ENGINE.rglob("*.c")), *sorted(HERE.glob("*.c"))]:
        name = "_".join(path.relative_to(HERE.parent).with_suffix("").parts)
        jobs.append((name, [*common, *own, *flags, *ours], path, {}))

    def compile_job(job):
        name, options, path, symbols_of = job
        target = objects / f"{name}.o"
        compile_object(target, [compiler, *options, "-c", str(path), "-o", str(target)], **symbols_of)
        return str(target)

    with concurrent.futures.ThreadPoolExecutor(os.process_cpu_count()) as executor:
        targets = list(executor.map(compile_job, jobs))
    exports = output / "exports"
    write(exports, "{ global: PyInit__engine; local: *; };\n")
    module = output / file_name(version)
    run([compiler, "-o", str(module), *targets, *LINKED, *flags, *everywhere, f"-Wl,--version-script={exports}"])
    if version == platform.python_version():
        missing = symbols.undefined(module) - symbols.exported(os.path.realpath(sys.executable))
        missing = sorted(name for name in missing if re.match(r"_?Py|stm_|loop_", name))
        if missing:
            raise BuildError(f"the loop needs what neither the interpreter nor the build has: {', '.join(missing)}")
    return module
