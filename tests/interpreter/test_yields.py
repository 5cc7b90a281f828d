"""An interpreter's calls of ``sched_yield`` come to the engine, however it has been linked.

The interpreter here is linked in one way; that of a distribution may have the table of its calls protected, or call past it.  So a program stands
for it that has the function which the engine looks for.
"""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

import tornado.stm
from interpreters import needs_engine

needs_engine()
if not shutil.which("cc"):
    pytest.skip("there is no C compiler", allow_module_level=True)

PACKAGE = Path(tornado.stm.__file__).parent

ENGINE = '#include "yields.c"'
SYSTEM = "int yielded; int sched_yield(void) { return yielded++ & 0; }"
PROGRAM = """
#include <sched.h>
#include <stdio.h>

void keep_processor(void);
extern int yielded;
static volatile int written = 1;

int _PyMutex_LockTimed(void) { for (int i = 0; i < 40; i++) sched_yield(); return 0; }

static void wait(void) { yielded = 0; _PyMutex_LockTimed(); printf("%d ", yielded); written++; }

int main(void)
{
    wait();
    keep_processor();
    wait();
    return 0;
}
"""


@pytest.mark.parametrize(
    "options",
    ["-Wl,-z,lazy -Wl,-z,norelro", "-Wl,-z,lazy -Wl,-z,relro", "-Wl,-z,now -Wl,-z,relro", "-fno-plt -Wl,-z,now -Wl,-z,relro", "-no-pie -Wl,-z,now"],
)
def test_threads_do_not_yield_once_there_are_transactions(tmp_path, options):
    headers = Path(sysconfig.get_path("include"))
    sources = {"engine": ENGINE, "system": SYSTEM, "program": PROGRAM}
    for name, text in sources.items():
        (tmp_path / f"{name}.c").write_text(text)
    folders = [PACKAGE / "engine", PACKAGE / "interpreter", headers, headers / "internal"]
    compiler = ["cc", "-O1", "-w", "-fPIC", "-DPy_BUILD_CORE_MODULE", *[f"-I{folder}" for folder in folders]]
    for name in ("system", "engine"):
        subprocess.run([*compiler, "-shared", f"{name}.c", "-o", f"lib{name}.so"], cwd=tmp_path, check=True)
    linked = ["-rdynamic", "-L.", "-lsystem", "-lengine", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["cc", "-O1", *options.split(), "program.c", "-o", "program", *linked], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["40", "0"]
