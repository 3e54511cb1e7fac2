#!/usr/bin/env python3
# tests/cli/slurm/private_cluster.py -- A Slurm of one machine for one test: nothing of it is outside its folder, nothing stays.
# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "sinfo")
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
prctl = ctypes.CDLL(None, use_errno=True).prctl

# A requeued task waits for cred_expire, else two minutes. Tasks count cores that the machine may not have.
CONFIGURATION = """ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres=gpu:{gpu}:{cpus}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_programs():
    path = os.environ.get("PATH", "") + ":" + SYSTEM_PATH
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def descendants(pid):
    """Of a process, from the first to the last."""
    parents = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found[1:]


class PrivateCluster:
    """`with PrivateCluster(folder, cpus, gpu) as cluster`: one node with `cpus` cores and as many GPUs in name."""

    def __init__(self, folder, cpus, gpu):
        self.folder = pathlib.Path(folder)
        self.environment = dict(os.environ, SLURM_CONF=str(self.folder / "slurm.conf"), HOME=str(self.folder),
                                TMPDIR=str(self.folder))
        self.environment["PATH"] = self.environment.get("PATH", "") + ":" + SYSTEM_PATH
        for name in [name for name in self.environment if name.startswith(("SLURM_", "SBATCH_"))]:
            if name != "SLURM_CONF":
                del self.environment[name]
        self.host = socket.gethostname().split(".")[0]
        self.daemons = []
        self._configure(cpus, gpu)

    def _configure(self, cpus, gpu):
        controller_port, node_port = free_ports(2)
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=self.host, folder=self.folder, cpus=cpus, gpu=gpu, user=pwd.getpwuid(os.geteuid()).pw_name,
            controller_port=controller_port, node_port=node_port))
        for number in range(cpus):
            (self.folder / f"gpu{number}").touch()
        (self.folder / "gres.conf").write_text(
            f"NodeName={self.host} Name=gpu Type={gpu} File={self.folder}/gpu[0-{cpus - 1}]\n")
        # None is used. Of the plugins for that the older versions have one, the newer another.
        version = [int(number) for number in re.findall(r"\d+", self.run("slurmd", "-V"))[:2]]
        plugin = "disabled" if version >= [23, 11] else "cgroup/v1"
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)

    def _start(self, *command):
        log = open(self.folder / f"{command[0]}.out", "wb")
        self.daemons.append(subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL)))

    def __enter__(self):
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # a job's processes outlive slurmd: they come to this one
        try:
            munge = self.folder / "munge"
            self._start("munged", "--foreground", "--force", "--num-threads=2", f"--key-file={munge}.key",
                        f"--socket={munge}.socket", f"--pid-file={munge}.pid", f"--log-file={munge}.log",
                        f"--seed-file={munge}.seed")
            self.wait("munged", 20, lambda: (self.folder / "munge.socket").exists())
            self._start("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
            self._start("slurmd", "-D", "-N", self.host, "-f", str(self.folder / "slurm.conf"))
            self.wait("an idle node", 60, lambda: "idle" in self.run("sinfo", "-h", "-o", "%t", check=False).split())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_):
        self._end()

    def _end(self):
        for _ in range(20):  # what is killed may have begun another
            running = descendants(os.getpid())
            for pid in running:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.1)
        raise RuntimeError(f"processes that do not end: {descendants(os.getpid())}")

    def run(self, *command, check=True):
        result = subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=60)
        if check and result.returncode != 0:
            raise RuntimeError(f"{command} ended with {result.returncode}: {result.stdout}")
        return result.stdout

    def state(self, job):
        """PENDING, RUNNING, COMPLETED, FAILED, ..."""
        shown = self.run("scontrol", "-o", "show", "job", job)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)["JobState"]

    def wait(self, what, seconds, condition):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {what} after {seconds} s\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        texts = [*self.folder.glob("*.log"), *self.folder.glob("*.out")]
        return "\n".join(f"== {text.name}\n{text.read_text(errors='replace')[-2000:]}" for text in sorted(texts))
