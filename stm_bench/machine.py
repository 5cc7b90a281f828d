"""The machine that it is measured on; and what the options of several benchmarks mean."""

import argparse
import datetime
import importlib.metadata
import os
import platform
import sys
import sysconfig
from pathlib import Path

from stm_bench.primes import LARGEST, positive
from tornado.stm import core, processors

__all__ = ["default_threads", "describe", "output_file", "positive", "size", "thread_counts", "usable_cpus"]


def usable_cpus():
    """The CPUs that this process may use."""
    return processors.usable()


def default_threads(cpus):
    """1, 2, 4... up to `cpus`, and `cpus` itself."""
    powers = [1 << exponent for exponent in range(cpus.bit_length()) if 1 << exponent <= cpus]
    return sorted({*powers, cpus})


def describe():
    """Where and when it is measured, as a dict."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": sys.version,
        "profile-guided": "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""),
        "Tornado": importlib.metadata.version("tornado"),
        "tornado-stm": importlib.metadata.version("tornado-stm"),
        "machine": platform.machine(),
        "processor": processor(),
        "system": platform.platform(),
        "cpus": usable_cpus(),
    }


def processor():
    """The processor's model where the system tells it, else what `platform` knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


# Arguments


def thread_counts(text):
    """The numbers of threads of ``--threads 1,2``: of tornado.stm; as many processes of upstream's are started."""
    counts = sorted({positive(count) for count in text.split(",")})
    if counts[-1] > core.MOST_THREADS:
        raise argparse.ArgumentTypeError("more than %d threads: %d" % (core.MOST_THREADS, counts[-1]))
    return counts


def size(text):
    """The N of a request for primes."""
    number = positive(text)
    if number > LARGEST:
        raise argparse.ArgumentTypeError("larger than %d: %d" % (LARGEST, number))
    return number


def output_file(text):
    """A file that can be written when the benchmark is done: found out before it starts."""
    folder = os.path.dirname(text) or "."
    if os.path.isdir(text) or not os.access(text if os.path.exists(text) else folder, os.W_OK):
        raise argparse.ArgumentTypeError("cannot write %s" % text)
    return text
