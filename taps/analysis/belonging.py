"""Whether all that a report is made of belongs to one study: one target, and one draft model behind each name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from taps.analysis.results import ReplayFile
from taps.plumbing.kinds import KINDS
from taps.plumbing.lineage import check_equal, check_label, inputs_of, labels_of
from taps.plumbing.provenance import digest_of

Labelled = Sequence[tuple[str, Path]]  # label, path


def check_one_study(
    replays: Sequence[ReplayFile],
    *,
    calibrations: Labelled = (),
    drafters: Labelled = (),
    live: Labelled = (),
    cost: Path | None = None,
    target: Path | None = None,
) -> dict[str, str]:
    """Returns {"target": digest} of the study, empty if no replay names one.

    Args:
        replays: What the tables are computed from.
        calibrations: `method/seed0` -> its calibration.
        drafters: `method/seed0/mixture` -> folder of a draft model.
        live: `method/benchmark` -> report of the live check.
        cost: Forward times of target and drafters, by `taps.cost`.
        target: The target's folder.

    Raises:
        ArtefactError: one of them is of another target, of another draft model than a replay of that name, or not what
            its label says.
    """
    of_study: dict[str, tuple[str, Path]] = {}  # `target` or `drafter method/seed0/name` -> its digest, who names it
    for replay in replays:
        for name, digest in _of(replay.run, replay.inputs):
            known, known_by = of_study.setdefault(name, (digest, replay.path))
            check_equal(replay.path, name, digest, known, wanted_by=known_by, kind="replay")

    def check(path: Path, kind: str, run: str, inputs: Mapping[str, str]) -> None:
        for name, digest in _of(run, inputs):
            known, known_by = of_study.get(name, (None, ""))
            check_equal(path, name, digest, known, wanted_by=known_by, kind=kind)

    for run, path in calibrations:
        check(path, "calibration", run, inputs_of(path, kind="calibration"))
    for label, path in live:
        method, _, benchmark = label.rpartition("/")
        found = labels_of(path, "method", "benchmark", "training_seed", kind="live_check")
        for name, wanted in (("method", method), ("benchmark", benchmark)):
            check_label(path, name, found.get(name), wanted, flag="--live")
        run = f"{method}/seed{found.get('training_seed', 0)}"
        check(path, "live_check", run, inputs_of(path, kind="live_check"))
    for label, folder in drafters:
        run, _, mixture = label.rpartition("/")
        own = inputs_of(folder, kind="drafter")
        itself = {f"drafter.{mixture}": digest_of(folder)} if (folder / KINDS["drafter"].record).exists() else {}
        check(folder, "drafter", run, own | itself)
        for file, kind in (("training.json", "training"), ("metrics.jsonl", "metrics")):
            if (folder / file).exists():
                for name, digest in inputs_of(folder / file, kind=kind).items():
                    check_equal(folder / file, name, digest, own.get(name), wanted_by=folder, kind=kind)
    if cost is not None:
        check(cost, "cost", "", {"target": inputs_of(cost, kind="cost").get("target", "")})
    if target is not None:
        check(target, "target", "", {"target": digest_of(target)})
    return {"target": of_study["target"][0]} if "target" in of_study else {}


def _of(run: str, inputs: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns (`target` or `drafter method/seed0/name`, digest) of what an artefact names of these.

    Args:
        run: Method and training seed; a method alone is of seed 0.
        inputs: Name -> digest of its causes.
    """
    run = run if "/seed" in run else f"{run}/seed0"
    found = [("target", inputs["target"])] if inputs.get("target") else []
    for name, digest in inputs.items():
        if name.startswith("drafter."):
            found.append((f"drafter {run}/{name.removeprefix('drafter.')}", digest))
    return found
