"""Measures, intervals, tables, figures and claims, all computed from replays."""
