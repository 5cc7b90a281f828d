"""How many processors this process may use: those that it may run on, and no more than its control groups give it the time of.

A container is such a group.  Of the 64 processors of its machine it may run on all, and use the time of two (Docker's ``--cpus 2``, a
limit of Kubernetes').  With 64 threads that is used up at the beginning of each tenth of a second, and then all of them stand still
until the next one begins, with all that they have locked.

Source: cgroups(7), proc_pid_mountinfo(5); "cpu.max" in Linux's cgroup-v2.rst, and sched-bwc.rst.
"""

import math
import os
import pathlib


def usable(root="/"):
    """Their number, 1 at least.

    Args:
        root: the folder of ``proc`` and of the groups' files.
    """
    count = getattr(os, "process_cpu_count", None)
    own = (count() if count else len(os.sched_getaffinity(0))) or 1
    try:
        limit = min((limit for group in _groups(pathlib.Path(root)) for limit in _limits(group)), default=math.inf)
    except (OSError, ValueError):
        return own  # another system, or one that hides its groups
    return own if limit >= own else max(1, math.ceil(limit))


def _groups(root):
    """The folders of the groups that this process is in and that may limit its processor time, with those above each."""
    paths = {}  # of the groups, by what they control; all of version 2 by ""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        mount, _, rest = line.partition(" - ")
        top, where = mount.split()[3:5]
        kind, _, options = rest.split()[:3]
        controller = {"cgroup": "cpu", "cgroup2": ""}.get(kind)
        if controller not in paths or (controller and controller not in options.split(",")):
            continue
        where = root / where.lstrip("/")
        inside = os.path.relpath(paths[controller], top)
        group = where if inside.startswith("..") else where / inside
        yield group
        yield from (above for above in group.parents if above.is_relative_to(where))


def _limits(group):
    """Of processor time a second, in seconds: what the group may use, if it has a limit."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        try:
            quota, period = " ".join((group / name).read_text() for name in names).split()
        except FileNotFoundError:
            continue
        if quota not in ("max", "-1"):
            yield int(quota) / int(period)
