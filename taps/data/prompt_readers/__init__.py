"""Readers of benchmark prompts: one function per format, from a record to its prompt or a reason.

To add one, write a function under `@prompt_reader(...)` in a module of this package, a new one, and name it in the
config: only the prompts that use it run again. What formats share is in `taps.data.prompt_reader`.
"""
