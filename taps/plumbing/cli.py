"""Entry point of every stage: `if __name__ == "__main__": run(main)` turns known errors into one line on stderr.

Also the parser of a stage's flags and the types of arguments that several stages share.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from taps.plumbing.disk import in_words, number_of
from taps.plumbing.errors import TapsError
from taps.plumbing.numbers import TYPES

_NO_MEMORY = "out of memory; lower the batch size of this stage or give it more memory, then rerun"


def run(main: Callable[[], None]) -> None:
    """Runs `main` and exits: 0 on success, 1 with one line on a known error, 130 on Ctrl-C.

    Known are: what a user can mend (TapsError), whatever the operating system refused (any OSError, also one that a
    library has wrapped), and memory that ran out. Everything else is a fault of ours and keeps its traceback. So do all
    errors if TAPS_TRACEBACK is set in the environment.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough, as in `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it flushes
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        line = in_one_line(error)
        if line is None or "TAPS_TRACEBACK" in os.environ:
            raise
        from taps.plumbing.progress import end_bars  # costs the import of tqdm, which many stages do without

        end_bars()
        print(f"error: {line}", file=sys.stderr)
        sys.exit(1)


def in_one_line(error: Exception) -> str | None:
    """Returns what a user is told of an error; None if it is a fault of ours."""
    if isinstance(error, TapsError):
        return str(error)
    # torch reports an exhausted device or allocator as a RuntimeError
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _speaks_of_memory(str(error))):
        return _NO_MEMORY
    if isinstance(error, OSError):
        return in_words(error)
    number = number_of(error)  # a library may have wrapped the system's refusal, and left out what it was about
    if not number:
        return None
    return in_words(OSError(number, os.strerror(number), _first_filename(error)))


def _speaks_of_memory(text: str) -> bool:
    return any(words in text.lower() for words in ("out of memory", "can't allocate memory"))


def _first_filename(error: BaseException | None) -> Any:
    while error is not None:
        if isinstance(error, OSError) and error.filename is not None:
            return error.filename
        error = error.__cause__ or error.__context__
    return None


# --- parsers ---------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Prints the complaint and exits with 2."""
        text = " ".join(message.removeprefix("argument ").split())
        self.exit(2, f"error: {text}; see {self.prog} --help\n")


def stage_parser(module: str, text: str | None) -> argparse.ArgumentParser:
    """Returns an empty parser for a stage's flags, named as it was called: `python -m taps.x` or `taps x`.

    Args:
        module: The stage, e.g. `taps.trace`.
        text: Its docstring, shown as it is.
    """
    called = f"taps {module.removeprefix('taps.')}" if Path(sys.argv[0]).name == "taps" else f"python -m {module}"
    parser = _Parser(prog=called, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kind in TYPES.items():
        parser.register("type", name, kind)
    return parser


def named_path(text: str) -> tuple[str, Path]:
    """Returns (name, path) of an argument such as `math=banks/math.safetensors`; an argparse type.

    Raises:
        ArgumentTypeError: no `=`, or nothing on one side of it.
    """
    name, path = named_text(text, example="NAME=PATH, e.g. math=banks/math.safetensors")
    return name, Path(path)


def named_text(text: str, example: str = "NAME=TEXT") -> tuple[str, str]:
    """Returns (name, text) of an argument such as `math=best on GSM8K`; an argparse type.

    Raises:
        ArgumentTypeError: no `=`, or nothing on one side of it.
    """
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"expected {example}, found {text!r}")
    return name, value


NAMED_PATHS: dict[str, Any] = {"type": named_path, "action": "append"}
"""Keywords of `add_argument` for a flag that is given once per named file."""


def by_name(paths: Sequence[tuple[str, Path]], flag: str) -> dict[str, Path]:
    """Returns name -> path of such a flag's values.

    Raises:
        TapsError: a name is given twice.
    """
    if repeated := sorted({name for name, _ in paths if [other for other, _ in paths].count(name) > 1}):
        raise TapsError(flag, "a name is given twice", found=", ".join(repeated))
    return dict(paths)
