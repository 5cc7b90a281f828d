"""How many threads there are where nobody says: no more than the control groups of the process give it the time of."""

import os

import pytest

from tornado.stm import processors

VERSION_1 = "4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n0::/\n"
MOUNTED_1 = """
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 {top} /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 {top} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:39 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
VERSION_2 = "0::/pods/a\n"
MOUNTED_2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.fixture(autouse=True)
def eight(monkeypatch):
    monkeypatch.setattr(os, "process_cpu_count", lambda: 8, raising=False)


def usable(folder, groups, mounts, files):
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text(groups)
    (folder / "proc/self/mountinfo").write_text(mounts)
    for name, text in files.items():
        file = folder / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return processors.usable(folder)


def test_those_that_it_may_run_on(tmp_path):
    assert processors.usable(tmp_path) == 8
    assert usable(tmp_path, VERSION_2, MOUNTED_2, {"pods/a/cpu.max": "max 100000\n", "pods/cpu.max": "max 100000\n"}) == 8


@pytest.mark.parametrize("limit, count", [("200000", 2), ("150000", 2), ("10000", 1), ("1600000", 8), ("800000", 8)])
def test_the_limit_of_the_group(tmp_path, limit, count):
    assert usable(tmp_path, VERSION_2, MOUNTED_2, {"pods/a/cpu.max": f"{limit} 100000\n"}) == count


def test_the_limit_of_a_group_above(tmp_path):
    assert usable(tmp_path, VERSION_2, MOUNTED_2, {"pods/a/cpu.max": "400000 100000\n", "pods/cpu.max": "150000 50000\n"}) == 3


@pytest.mark.parametrize("top, folder", [("/", "cpu/docker/a"), ("/docker/a", "cpu"), ("/another", "cpu")])
def test_the_limit_by_version_1(tmp_path, top, folder):
    files = {f"{folder}/cpu.cfs_quota_us": "250000\n", f"{folder}/cpu.cfs_period_us": "100000\n", "cpu.max": "100000 100000\n"}
    assert usable(tmp_path, VERSION_1, MOUNTED_1.format(top=top).lstrip(), files) == 3


def test_no_limit_by_version_1(tmp_path):
    files = {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}
    assert usable(tmp_path, VERSION_1, MOUNTED_1.format(top="/docker/a").lstrip(), files) == 8


def test_files_that_say_something_else(tmp_path):
    assert usable(tmp_path, "nothing", MOUNTED_2, {}) == 8
