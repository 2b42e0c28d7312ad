"""A standalone cluster of Spark on the loopback addresses of this machine, and drivers in processes of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

JOBS = Path(__file__).with_name("spark_jobs.py")
HOSTS = ("127.0.0.1", "127.0.0.2")
"""Spark runs a second copy of a task only on another host."""
PATIENCE_S = 240.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master and two workers with one core each."""

    master: str
    workers: tuple[int, ...]
    """Their process ids; executors are their children."""

    def executors(self) -> list[int]:
        """The process ids of the executors that run now."""
        return [child for worker in self.workers for child in children(worker) if "Executor" in command(child)]

    @contextmanager
    def driver(self, what: str, lake: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A driver that does one thing; it is gone afterwards, with everything that it started."""
        started = [sys.executable, str(JOBS), self.master, what, str(lake), *arguments]
        process = subprocess.Popen(
            started, env=loopback(HOSTS[0]), stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            yield process
        finally:
            kill_group(process)
            assert process.stdout is not None
            process.stdout.close()
            until(lambda: not self.executors(), "executors of a driver that is gone end")

    def run(self, what: str, lake: Path, *arguments: str) -> list[str]:
        """Let a driver do one thing; what it printed."""
        with self.driver(what, lake, *arguments) as process:
            printed, _ = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0
        return printed.splitlines()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for all tests of a run."""
    import pyspark

    from tidelake.engines.spark.session.java import find_java

    home = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    run = Path(pyspark.__file__).parent / "bin" / "spark-class"
    folder = tmp_path_factory.mktemp("cluster")
    port = str(free_port())
    with ExitStack() as stack:

        def start(host: str, *arguments: str) -> int:
            log = stack.enter_context((folder / f"{arguments[0].rpartition('.')[2]}-{host}.log").open("w"))
            process = subprocess.Popen(
                [str(run), *arguments], env=loopback(host), stdout=log, stderr=log, cwd=folder, start_new_session=True
            )
            stack.callback(kill_group, process)
            return process.pid

        deploy = "org.apache.spark.deploy"
        start(HOSTS[0], f"{deploy}.master.Master", "--host", HOSTS[0], "--port", port, "--webui-port", "0")
        until(lambda: listens(int(port)), "the master listens")
        master = f"spark://{HOSTS[0]}:{port}"
        size = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        workers = [
            start(host, f"{deploy}.worker.Worker", "--host", host, *size, "--work-dir", str(folder / host), master)
            for host in HOSTS
        ]
        yield Cluster(master, tuple(workers))


def loopback(host: str) -> dict[str, str]:
    """The environment of a process that is reached from this machine only."""
    return {**os.environ, "SPARK_LOCAL_IP": host, "PYSPARK_PYTHON": sys.executable}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind((HOSTS[0], 0))
        port: int = found.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as tried:
        return tried.connect_ex((HOSTS[0], port)) == 0


def until(true: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for something."""
    end = time.monotonic() + patience_s  # noqa: TID251 - other processes take their time
    while not true():
        assert time.monotonic() < end, f"waited in vain: {what}"  # noqa: TID251 - as above
        time.sleep(0.02)  # noqa: TID251 - as above


def children(pid: int) -> list[int]:
    """The children of a process."""
    with suppress(OSError):
        found = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for each in found for child in each.read_text().split()]
    return []


def command(pid: int) -> str:
    """How a process was started; nothing if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process that we started, with its children of the same group, and wait for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
