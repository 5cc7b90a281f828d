"""Build the engine with its own evaluation loop:  python -m tornado.stm.interpreter.build SOURCE OUTPUT

SOURCE is the folder of CPython's unpacked source, of exactly the version that runs this; OUTPUT gets the extension module.
"""

import concurrent.futures
import glob
import os
import pathlib
import platform
import re
import subprocess
import sys
import sysconfig

from . import generate, sources, symbols

ENGINE = pathlib.Path(__file__).parent.parent / "engine"
HERE = pathlib.Path(__file__).parent

FLAGS = """-std=gnu11 -O3 -g -DNDEBUG -fPIC -fno-plt -fsemantic-interposition -fvisibility=hidden -fno-strict-overflow
    -fno-strict-aliasing -ffunction-sections -fdata-sections -pthread -DPy_BUILD_CORE_MODULE -DSTM_LOOP""".split() + os.environ.get("CFLAGS", "").split()


class BuildError(Exception):
    """Why there can be no loop, and what to do."""


def check(source):
    """Can a loop for this interpreter be built from that source here?"""
    machine = platform.machine(), sys.platform
    if machine != ("x86_64", "linux"):
        raise BuildError(f"the loop is for Linux on x86_64, and this is {machine[1]} on {machine[0]}")
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BuildError("this interpreter has a GIL: it needs no loop")
    try:
        text = (source / "Include" / "patchlevel.h").read_text()
    except OSError:
        raise BuildError(f"{source} is not CPython's source: it has no Include/patchlevel.h") from None
    version = re.search(r'#define PY_VERSION\s+"([^"]+)"', text)[1]
    if version != platform.python_version():
        raise BuildError(f"{source} is that of CPython {version}, and this is {platform.python_version()}")


def compile_all(jobs):
    """Run these commands, as many at a time as there are processors."""
    with concurrent.futures.ThreadPoolExecutor(os.process_cpu_count()) as executor:
        for done in executor.map(lambda job: subprocess.run(job, capture_output=True, text=True), jobs):
            if done.returncode:
                raise BuildError(f"{' '.join(done.args)}\n{done.stderr}")


def build(source, output, compiler="gcc"):
    """Build the extension module; return its path.

    Raises:
        BuildError: see there.
    """
    source, output = pathlib.Path(source).resolve(), pathlib.Path(output).resolve()
    check(source)
    made, objects = output / "made", output / "objects"
    for folder in (made, objects):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        generate.generate(source, made)
        cases = made / "generated_cases.c.h"
        cases.write_text(sources.changed("generated_cases", cases.read_text()))
        names = [name for name in sources.CHANGED if "/" in name]
        for name in names:
            text = sources.changed(name, (source / f"{name}.c").read_text())
            if name == "Python/ceval":
                text = text.replace('#include "pycore_stackref.h"', '#include "pycore_stackref.h"\n#include "loop.h"', 1)
            (made / pathlib.Path(name).with_suffix(".c").name).write_text(text)
    except ValueError as e:
        raise BuildError(f"not known how to build a loop for this version: {e}") from None
    (made / "ceval_macros.h").write_text((source / "Python" / "ceval_macros.h").read_text())
    include = pathlib.Path(sysconfig.get_path("include"))
    (made / "pyconfig.h").write_text((include / "pyconfig.h").read_text())
    core = [f"-I{path}" for path in (made, ENGINE, HERE, source / "Include" / "internal", source / "Include" / "internal" / "mimalloc",
                                     source, source / "Include", source / "Python")]
    ours = [f"-I{path}" for path in (ENGINE, HERE, include, include / "internal")]
    jobs, theirs = [], []
    for path in [*(source / f"{name}.c" for name in sources.BORROWED), *(made / f"{name.rpartition('/')[2]}.c" for name in names)]:
        theirs.append(objects / f"cpython_{path.stem}.o")
        jobs.append([compiler, *FLAGS, "-w", *core, "-c", str(path), "-o", str(theirs[-1])])
    for path in [*map(pathlib.Path, glob.glob(f"{ENGINE}/*.c")), *HERE.glob("*.c")]:
        jobs.append([compiler, *FLAGS, "-Wall", *ours, "-c", str(path), "-o", str(objects / f"{path.parent.name}_{path.stem}.o")])
    compile_all(jobs)
    known = symbols.exported(os.path.realpath(sys.executable))
    for path in theirs:
        symbols.undefine(path, known)
    (output / "exports").write_text("{ global: PyInit__engine; local: *; };\n")
    module = output / f"_engine{sysconfig.get_config_var('EXT_SUFFIX')}"
    compile_all([[
        compiler, "-shared", "-pthread", "-o", str(module), *(job[-1] for job in jobs), "-lm", "-Wl,--gc-sections",
        "-Wl,-Bsymbolic-functions", f"-Wl,--version-script={output / 'exports'}",
    ]])
    missing = symbols.undefined(module) - known
    missing = sorted(name for name in missing if re.match(r"_?Py|stm_|loop_", name))
    if missing:
        raise BuildError(f"the loop needs what neither the interpreter nor the build has: {', '.join(missing)}")
    return module


def main():
    try:
        source, output = sys.argv[1:]
    except ValueError:
        sys.exit(__doc__.partition("\n")[0])
    try:
        print(build(source, output))
    except BuildError as e:
        print(f"tornado.stm: {e}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
