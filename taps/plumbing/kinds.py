"""Every kind of artefact: its shape, the stages that write it, what it names as its causes.

An artefact says its kind in its envelope, and a reader asks for one by name. Tests take this list to damage one file of
each kind, and refuse code that writes a kind which is not on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Shape(StrEnum):
    """How an artefact lies on disk."""

    JSON = "json"
    """One file, the envelope around `content`."""
    ROWS = "rows"
    """JSON lines, the envelope in a sidecar."""
    TENSORS = "tensors"
    """A safetensors file, the envelope in its header."""
    TABLE = "table"
    """A parquet file, the envelope in its footer."""
    FOLDER = "folder"
    """A folder with a record, a JSON artefact that stands for it."""
    SOURCE = "source"
    """A file or folder in its own format, the envelope in a sidecar."""


@dataclass(frozen=True)
class Kind:
    """One kind of artefact.

    Attributes:
        name: As its envelope says.
        shape: How it lies on disk.
        stages: Modules that write it, the usual one first.
        made_from: Names in `provenance.inputs` that every such artefact has; one that ends in `.` begins several.
        record: Name of a folder's record.
    """

    name: str
    shape: Shape
    stages: tuple[str, ...]
    made_from: tuple[str, ...] = ()
    record: str = ""


KINDS = {
    kind.name: kind
    for kind in (
        Kind("asset", Shape.SOURCE, ("taps.fetch",)),
        Kind("corpus", Shape.ROWS, ("taps.corpus", "taps.regenerate")),
        Kind("audit", Shape.JSON, ("taps.corpus", "taps.prompts", "taps.tokenise", "taps.regenerate")),
        Kind("prompts", Shape.ROWS, ("taps.prompts", "taps.heldout")),
        Kind("overlap", Shape.JSON, ("taps.overlap",), ("corpus_", "prompts_")),
        Kind("tokens", Shape.TENSORS, ("taps.tokenise",), ("target", "corpus")),
        Kind("draft_vocab", Shape.TENSORS, ("taps.draft_vocab",), ("target", "tokens.")),
        Kind("mixture", Shape.JSON, ("taps.mixture",), ("target", "tokens.")),
        Kind("target", Shape.FOLDER, ("taps.prepare_target", "taps.tiny_target"), record="provenance.json"),
        Kind(
            "features",
            Shape.FOLDER,
            ("taps.features", "taps.join_features"),
            ("target", "tokens"),
            record="manifest.json",
        ),
        Kind("feature_part", Shape.FOLDER, ("taps.features",), ("target", "tokens"), record="manifest.json"),
        Kind("feature_shard", Shape.TENSORS, ("taps.features",), ("target", "tokens")),
        Kind(
            "drafter",
            Shape.FOLDER,
            ("taps.train", "taps.average", "taps.import_draft"),
            ("target",),
            record="provenance.json",
        ),
        Kind("training", Shape.JSON, ("taps.train",), ("target", "mixture", "tokens.")),
        Kind("metrics", Shape.ROWS, ("taps.train",), ("target", "mixture", "tokens.")),
        Kind("trace", Shape.TENSORS, ("taps.trace", "taps.join_texts"), ("target", "prompts")),
        Kind("bank", Shape.TENSORS, ("taps.bank", "taps.join_texts"), ("target", "drafter", "trace")),
        Kind("calibration", Shape.JSON, ("taps.calibrate",), ("trace.", "bank.", "drafter.")),
        Kind("router", Shape.JSON, ("taps.fit_router",), ("trace.", "bank.", "drafter.")),
        Kind("tuned", Shape.JSON, ("taps.tune",), ("target", "heldout.", "bank.", "drafter.", "cost")),
        Kind("view_check", Shape.JSON, ("taps.check_views",), ("target", "trace", "bank.")),
        Kind("replay", Shape.TABLE, ("taps.replay",), ("target", "trace", "bank.", "drafter.")),
        Kind("replay_nodes", Shape.TABLE, ("taps.replay",), ("target", "trace", "bank.", "drafter.")),
        Kind("cost", Shape.JSON, ("taps.cost",), ("target", "drafter.")),
        Kind("live_check", Shape.JSON, ("taps.live_check",), ("target", "drafter.", "trace", "bank.")),
        Kind("vllm_check", Shape.JSON, ("taps.vllm_check",), ("target", "drafter.", "prompts.")),
        Kind("decoded", Shape.JSON, ("taps.decode",), ("target", "drafter.")),
        Kind("tables", Shape.FOLDER, ("taps.tables",), record="tables.json"),
        Kind("figures", Shape.FOLDER, ("taps.figures",), ("tables",), record="figures.json"),
        Kind("claims", Shape.FOLDER, ("taps.claims",), ("tables",), record="claims.json"),
        Kind("plan", Shape.JSON, ("taps.plan",)),
        Kind("speed", Shape.JSON, ("taps.speed",)),
        Kind("decoding_speed", Shape.JSON, ("taps.decoding_speed",)),
    )
}
"""Name -> kind."""
