"""Entry point of every stage: `if __name__ == "__main__": run(main)` turns known errors into one line on stderr.

Also the types of arguments that several stages share.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from taps.plumbing.errors import TapsError


def run(main: Callable[[], None]) -> None:
    """Runs `main` and exits: 0 on success, 1 with one line on a known error, 130 on Ctrl-C.

    Unknown exceptions keep their traceback: they are ours to mend, not the user's.
    """
    try:
        main()
        sys.stdout.flush()
    except TapsError as error:
        _fail(str(error))
    except BrokenPipeError:  # whoever read our output has seen enough, as in `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it flushes
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _fail(f"{error.filename or 'output'}: disk full; free some space and rerun, nothing half-written was kept")
    except MemoryError:
        _fail("out of memory; lower the batch size of this stage or give it more memory, then rerun")
    except RuntimeError as error:  # torch reports an exhausted device or allocator as a RuntimeError
        if not any(text in str(error).lower() for text in ("out of memory", "can't allocate memory")):
            raise
        _fail("out of memory; lower the batch size of this stage or give it more memory, then rerun")
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)


def stage_parser(module: str, text: str | None) -> argparse.ArgumentParser:
    """Returns an empty parser for a stage's flags, named as it was called: `python -m taps.x` or `taps x`.

    Args:
        module: The stage, e.g. `taps.trace`.
        text: Its docstring, shown as it is.
    """
    called = f"taps {module.removeprefix('taps.')}" if Path(sys.argv[0]).name == "taps" else f"python -m {module}"
    return argparse.ArgumentParser(prog=called, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def named_path(text: str) -> tuple[str, Path]:
    """Returns (name, path) of an argument such as `math=banks/math.safetensors`; an argparse type.

    Raises:
        ArgumentTypeError: no `=`, or nothing on one side of it.
    """
    name, _, path = text.partition("=")
    if not name or not path:
        raise argparse.ArgumentTypeError(f"expected NAME=PATH, e.g. math=banks/math.safetensors, found {text!r}")
    return name, Path(path)


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
