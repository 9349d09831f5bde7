"""Snakemake's logger plugin `taps`: what a run will do, a line per finished stage, a bar, and where the report is.

Snakemake finds packages of this name by itself; `logger: taps` in a profile selects it, as does `--logger taps`.
What Snakemake has to say besides (reasons, resources, rules) is in its own log, `.snakemake/log`.
"""

from __future__ import annotations

from snakemake_logger_plugin_taps.handler import LogHandler

__all__ = ["LogHandler"]
