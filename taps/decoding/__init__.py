"""Draft trees, verification, strategies, replay and the live engine."""
