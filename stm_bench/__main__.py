"""The command line: ``python -m stm_bench BENCHMARK [options]``."""

import signal
import sys

from stm_bench.errors import BenchmarkError, OneLineParser


def command_line(arguments=None):
    """Runs the benchmark that `arguments` (default: the process's own) name; returns the exit status.

    0: measured; 1: measured, but a request failed or was answered wrongly; 2: could not be run; 130: interrupted.
    """
    try:
        from stm_bench import apps_load, contention, engine_load, fresh_load, handlers_load, latency, workload_load, workloads
    except ModuleNotFoundError as error:
        return fail("%s is not installed: run make setup" % error.name)
    parser = OneLineParser(prog="stm_bench", description="Benchmarks of tornado.stm.")
    benchmarks = parser.add_subparsers(metavar="BENCHMARK", required=True)
    for name, module in (
        ("handlers", handlers_load),
        ("latency", latency),
        ("fresh", fresh_load),
        ("engine", engine_load),
        ("apps", apps_load),
        ("contention", contention),
    ):
        module.add_arguments(benchmarks.add_parser(name, help=module.SUMMARY, description=module.SUMMARY))
    workload_load.add_arguments_of_all(benchmarks.add_parser("all", help=workload_load.SUMMARY, description=workload_load.SUMMARY))
    for name in workloads.MODULES:
        summary = workloads.load(name).summary.replace("%", "%%")
        one = benchmarks.add_parser(name, help="workload: " + summary, description=summary)
        workload_load.add_arguments_of_one(one, workloads.load(name))
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # unwinds, which stops the servers
    try:
        return options.benchmark(options)
    except BenchmarkError as error:
        return fail(str(error), error.status)
    except KeyboardInterrupt:
        return fail("interrupted", 130)


def fail(message, status=2):
    print("stm_bench: %s" % message, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(command_line())
