"""A private SLURM of one node on the loopback device, for tests: two fake GPUs, no accounting, nothing of the system's.

Needs root and Debian's slurmctld, slurmd, slurm-client and munge; `why_not()` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

GPUS = 2
_PORT = 26841
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
_PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])

_CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
SlurmdPort={slurmd_port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=100000,sched_interval=1,bf_interval=1,batch_sched_delay=0
ReturnToService=1
KillWait=5
MinJobAge=3600
PropagateResourceLimits=NONE
SlurmdParameters=config_overrides
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/completed.txt
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes={host} MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Returns why no SLURM can be started here, None if it can."""
    missing = [program for program in _PROGRAMS if not shutil.which(program, path=_PATH)]
    if missing:
        return f"no {', '.join(missing)} here (Debian: slurmctld slurmd slurm-client munge)"
    if os.getuid() != 0:
        return "starting a private SLURM needs root"
    if not socket.gethostbyname(_host()).startswith("127."):
        return f"the host name {_host()} does not resolve to a loopback address"
    return None


class Cluster:
    """A running SLURM; `with Cluster(folder) as cluster`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        wrapper = folder / "bin"
        # the SLURM plugin strips SLURM_CONF from its inner srun, which must find the configuration by itself
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(wrapper), _PATH]),
            "SLURM_CONF": str(folder / "slurm.conf"),
        }

    def __enter__(self) -> Cluster:
        for name in ("munge", "ctld", "spool", "bin"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        (self.folder / "ctld").chmod(0o700)
        (self.folder / "completed.txt").touch()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        for index in range(GPUS):
            os.mknod(self.folder / f"fakegpu{index}", 0o666 | 0o020000, os.makedev(1, 3))  # what /dev/null is
        lines = [f"NodeName={_host()} Name=gpu File={self.folder}/fakegpu{index}" for index in range(GPUS)]
        (self.folder / "gres.conf").write_text("\n".join(lines) + "\n")
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 * 9 // 10
        text = _CONFIG.format(
            host=_host(),
            folder=self.folder,
            port=_PORT,
            slurmd_port=_PORT + 1,
            cpus=os.cpu_count(),
            memory=memory,
            gpus=GPUS,
        )
        (self.folder / "slurm.conf").write_text(text)
        srun = self.folder / "bin" / "srun"
        srun.write_text(
            f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {shutil.which("srun", path=_PATH)} "$@"\n'
        )
        srun.chmod(0o755)
        munge = self.folder / "munge"
        files = {"key-file": key, "socket": munge / "munge.socket", "pid-file": munge / "munged.pid"}
        files |= {"log-file": munge / "munged.log", "seed-file": munge / "munged.seed"}
        self.start_daemon("munged", "--force", *(f"--{name}={path}" for name, path in files.items()))
        self.start_controller(clean=True)
        self.start_daemon("slurmd", "-f", str(self.folder / "slurm.conf"), "-N", _host())
        self.wait_for_node("idle")
        return self

    def __exit__(self, *_: object) -> None:
        self.run("scancel", "--user=root", check=False)
        for name in ("slurmd.pid", "slurmctld.pid", "munge/munged.pid"):
            self._end(self.folder / name)

    def start_controller(self, *, clean: bool = False) -> None:
        """Starts slurmctld, with the jobs that its last life knew unless `clean`."""
        self.start_daemon("slurmctld", "-f", str(self.folder / "slurm.conf"), "-i", *(["-c"] if clean else []))

    def stop_controller(self) -> None:
        """Ends slurmctld; jobs go on."""
        self._end(self.folder / "slurmctld.pid")

    def start_daemon(self, *command: str) -> None:
        """Starts a program that goes to the background; it must not inherit pipes, which would then never close."""
        with open(self.folder / "daemons.log", "ab") as log:
            subprocess.run(command, env=self.environment, stdout=log, stderr=log, check=True, timeout=30)

    def run(self, *command: str, check: bool = True) -> str:
        """Returns what a command of SLURM prints."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0 or not check, f"{command}: {done.stderr}"
        return done.stdout

    def running(self) -> list[str]:
        """Returns the ids of running jobs."""
        return self.run("squeue", "--noheader", "--states=RUNNING", "--format=%i", check=False).split()

    def jobs(self) -> list[str]:
        """Returns one line of facts for each job of the last hour."""
        return self.run("scontrol", "show", "jobs", "--oneliner").splitlines()

    def completed(self) -> list[str]:
        """Returns one line for each job that has ended, however it ended."""
        return (self.folder / "completed.txt").read_text().splitlines()

    def wait_for_node(self, *states: str) -> None:
        """Waits until the node is in one of these states, e.g. idle."""
        for _ in range(300):
            found = self.run("sinfo", "--noheader", "--format=%T", check=False)
            if any(state in found for state in states):
                return
            time.sleep(0.1)
        raise AssertionError(f"the node did not become {' or '.join(states)}: {self.run('sinfo')}")

    def set_node(self, state: str) -> None:
        """Sets the node down, or resumes it."""
        self.run("scontrol", "update", f"NodeName={_host()}", f"State={state}", *(["Reason=test"] * (state == "down")))

    def start(self, command: Sequence[str | Path], log: Path) -> subprocess.Popen[bytes]:
        """Returns a process that can submit jobs; its output goes to `log`."""
        with open(log, "wb") as file:
            return subprocess.Popen(
                list(map(str, command)), env=self.environment, stdout=file, stderr=subprocess.STDOUT
            )

    @staticmethod
    def _end(pid_file: Path) -> None:
        try:
            pid = int(pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return
        for sent in (15, *[0] * 100, 9):
            try:
                os.kill(pid, sent)
            except ProcessLookupError:
                return
            time.sleep(0.1)


def _host() -> str:
    return socket.gethostname().split(".")[0]
