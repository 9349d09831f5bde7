"""Lines that stay, and a bar below them. Without a terminal, lines only: one now and then if all is quiet."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from tqdm import tqdm

_REDRAW_S = 1.0
_QUIET_S = 600.0  # without a terminal: silence after which a line says how far the run is


class Screen:
    """Writes to a stream; whoever reads it may be gone, which stops nothing.

    Args:
        stream: Where to (default: stderr, as Snakemake).
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.RLock()
        self._bar: Any = None
        self._status: Callable[[], tuple[int, str]] = lambda: (0, "")
        self._ended = threading.Event()
        self._said_at = time.monotonic()

    def say(self, text: str) -> None:
        """Writes lines that stay, above the bar if there is one."""
        with self._lock:
            self._said_at = time.monotonic()
            try:
                if self._bar is not None:
                    self._bar.clear()
                print(text, file=self._stream, flush=True)
                self._draw()
            except OSError:
                self._ended.set()

    def start_bar(self, total: int, status: Callable[[], tuple[int, str]]) -> None:
        """Keeps the bar, or without a terminal the line, up to date in a thread of its own until `end_bar`.

        Args:
            total: Steps at its end.
            status: Returns (steps done, words beside the bar).
        """
        self._status = status
        if self._stream.isatty():
            self._bar = tqdm(
                total=total,
                bar_format="|{bar:16}| {n_fmt}/{total_fmt}  {desc}",
                dynamic_ncols=True,
                leave=False,
                file=self._stream,
            )
        threading.Thread(target=self._keep, args=(total,), daemon=True).start()

    def end_bar(self) -> None:
        """Removes the bar."""
        self._ended.set()
        with self._lock:
            if self._bar is not None:
                self._bar.close()
                self._bar = None

    def _keep(self, total: int) -> None:
        while not self._ended.wait(_REDRAW_S):
            with self._lock, contextlib.suppress(OSError):
                self._draw()
                if self._bar is None and time.monotonic() - self._said_at > _QUIET_S:
                    done, words = self._status()
                    self.say(f"so far {done} of {total} jobs, {words}")

    def _draw(self) -> None:
        if self._bar is not None:
            self._bar.n, words = self._status()
            self._bar.set_description_str(words, refresh=False)
            self._bar.refresh()
