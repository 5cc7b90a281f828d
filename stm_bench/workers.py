"""Worker processes of the engine benchmark, as the parent sees them (see engine_worker.py for the child)."""

import json
import selectors
import subprocess
import sys
import tempfile

from stm_bench.errors import BenchmarkError
from stm_bench.servers import ROOT, last_lines

ANSWER_TIMEOUT = 300  # seconds until a worker must have answered


class WorkerProcess:
    """A context manager: a process that measures; after it the process has ended.  `name` is what messages call it."""

    def __init__(self, name, threads=1, serial=False):
        self.name = name
        self.command = [sys.executable, "-m", "stm_bench.engine_worker", "--threads", str(threads)]
        if serial:
            self.command.append("--serial")

    def __enter__(self):
        self.stderr = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
        )
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.communicate()
        self.stderr.close()

    def measure(self, task, **arguments):
        """What `engine_worker.Worker.measure` found there.  Raises BenchmarkError where it fails or does not answer."""
        try:
            self.process.stdin.write(json.dumps([task, arguments]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.ended() from None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(ANSWER_TIMEOUT):
                raise BenchmarkError("%s: %s has not ended after %d s" % (self.name, task, ANSWER_TIMEOUT))
        line = self.process.stdout.readline()
        if not line:
            raise self.ended()
        answer = json.loads(line)
        if "error" in answer:
            raise BenchmarkError("%s: %s failed: %s" % (self.name, task, answer["error"]))
        return answer

    def ended(self):
        status = self.process.wait()
        self.stderr.seek(0)
        said = last_lines(self.stderr.read(), 3) or "it printed nothing on stderr"
        return BenchmarkError("%s ended with status %d: %s" % (self.name, status, said))
