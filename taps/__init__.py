"""Task-aware proposal distributions for speculative sampling: the study of arXiv 2603.27027, rebuilt and extended."""

__version__ = "0.1.0"
