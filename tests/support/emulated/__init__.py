"""A device that looks like `cuda:0`, computes on the CPU and keeps a device's rules: CUDA paths run without one.

`device` is the device itself, `process` gives it to a process, `scenarios` drives the stages' cores on it, and
`python -m tests.support.emulated FOLDER` prints what it saw.
"""
