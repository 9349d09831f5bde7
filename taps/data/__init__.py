"""Corpora, benchmarks, chat templates and mixtures: from raw files to token lists."""
