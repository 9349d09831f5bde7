"""Readers of training conversations: one function per format, from a record to its conversation or a reason.

To add one, write a function under `@corpus_reader(...)` in a module of this package, a new one, and name it in the
config: only the corpora that use it run again. What formats share is in `taps.data.conversations`.
"""
