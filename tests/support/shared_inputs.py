"""Where the inputs lie that are handed over beside the repository; tests that read them are skipped without them."""

from __future__ import annotations

from pathlib import Path

_ROOTS = [parent / "shared" for parent in Path(__file__).resolve().parents]

SHARED = next((root for root in _ROOTS if (root / "cases").is_dir()), Path("/nonexistent"))
CASES = SHARED / "cases"
BENCHMARKS = SHARED / "data" / "benchmarks"
