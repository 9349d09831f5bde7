"""The SLURM profile on a real, private SLURM: a small study finishes through it, whatever happens to its jobs.

python -m tests.workflow.test_slurm FOLDER      # the whole smoke study instead, with the same mishaps
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.slurm_cluster import Cluster, why_not

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "workflow" / "studies" / "smoke.yaml"
REPLAY = "results/smoke/replays/eagle2/seed0/mt_bench/t0_s0.parquet"
# fetch, corpus, target, prompts, held-out, tokens, vocabulary, mixture, features, two traces, train, bank, replay
NUM_JOBS = 14
PATIENCE_S = 1200

WANTED = os.environ.get("TAPS_CI_SLURM") == "1"  # six minutes: the suite has ten
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WANTED, reason="takes six minutes: set TAPS_CI_SLURM=1"),
    pytest.mark.skipif(why_not() is not None, reason=f"SLURM cannot run: {why_not()}"),
]


def small_study() -> dict[str, Any]:
    """Returns the smoke study cut down to one corpus, one benchmark and one strategy."""
    config = yaml.safe_load(SMOKE.read_text())
    config["corpora"].pop("chat")
    config["mixtures"] = {"math": {"math": 1.0}}
    config["benchmarks"].pop("gsm_symbolic")
    config["evaluation"] |= {"sampling": [{"temperature": 0, "seeds": [0]}], "live": None}
    config["strategies"] = {"names": ["single", "single_double"]}
    del config["averaging"]
    return config


def profile_without_accounting() -> dict[str, Any]:
    """Returns profiles/slurm as its comments say to edit it for this cluster, with jobs that fit a small node."""
    profile = yaml.safe_load((ROOT / "profiles" / "slurm" / "config.yaml").read_text())
    profile |= {"slurm-status-command": "squeue", "slurm-no-account": True}
    profile |= {"slurm-init-seconds-before-status-checks": 7, "seconds-between-status-checks": 7}
    del profile["default-resources"]["slurm_account"]
    for resources in profile["set-resources"].values():
        resources |= {"mem_mb": 4000, "runtime": 30}
        if "gpu" in resources:
            resources["gpu"] = 1
    return profile | {"retries": 3, "latency-wait": 10}


def run_through(
    cluster: Cluster, folder: Path, config: dict[str, Any], mishaps: list[Callable[[], None]], target: str = "all"
) -> str:
    """Returns the log of a study that ran to its end while mishaps befell it, each in the middle of a job."""
    folder.mkdir()
    (folder / "study.yaml").write_text(yaml.safe_dump(config))
    (folder / "profile").mkdir()
    (folder / "profile" / "config.yaml").write_text(yaml.safe_dump(profile_without_accounting()))
    command: list[str | Path] = [
        Path(sys.executable).parent / "snakemake",
        target,
        "--snakefile",
        ROOT / "Snakefile",
        "--directory",
        folder,
    ]
    command += ["--workflow-profile", folder / "profile", "--replace-workflow-config"]
    log = folder / "run.log"
    run = cluster.start([*command, "--configfile", folder / "study.yaml"], log)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while run.poll() is None:
            assert time.monotonic() < deadline, f"no end within {PATIENCE_S} s\n{log.read_text()[-4000:]}"
            if mishaps and cluster.running():
                mishaps.pop(0)()
                time.sleep(10)
            time.sleep(1)
    finally:
        if run.poll() is None:
            run.terminate()
            run.wait()
    assert run.returncode == 0, log.read_text()[-6000:]
    assert mishaps == []
    return log.read_text()


def mishaps_on(cluster: Cluster) -> list[Callable[[], None]]:
    """Returns what may happen on a cluster: a job cancelled, a node lost and back, the controller restarted."""

    def cancel() -> None:
        cluster.run("scancel", cluster.running()[0])

    def lose_node() -> None:
        cluster.set_node("down")
        cluster.wait_for_node("down")
        cluster.set_node("resume")
        cluster.wait_for_node("idle", "mixed", "allocated")

    def restart_controller() -> None:
        cluster.stop_controller()
        cluster.start_controller()

    return [cancel, lose_node, restart_controller]


def test_a_study_finishes_through_slurm_whatever_happens_to_its_jobs(tmp_path: Path) -> None:
    with Cluster(tmp_path / "slurm") as cluster:
        run_through(cluster, tmp_path / "run", small_study(), mishaps_on(cluster), target=REPLAY)
        states = [line.split("JobState=")[1].split()[0] for line in cluster.completed()]
        jobs = cluster.jobs()
    assert (tmp_path / "run" / REPLAY).exists()
    assert "CANCELLED" in states
    assert states.count("COMPLETED") == NUM_JOBS
    # features, train, two traces (benchmark and held-out) and bank ask for a GPU, as the profile says
    assert len([line for line in jobs if "TresPerJob=gres:gpu:1" in line and "JobState=COMPLETED" in line]) == 5


if __name__ == "__main__":
    where = Path(sys.argv[1])
    with Cluster(where / "slurm") as private:
        run_through(private, where / "run", yaml.safe_load(SMOKE.read_text()), mishaps_on(private))
        print("\n".join(private.completed()))
