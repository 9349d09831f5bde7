"""README's commands: found in its text, checked without running, or run in order in a fresh clone.

    python -m tests.support.readme_commands --folder /tmp/readme     # clones this checkout's HEAD and runs all of them

A command is a line (or several, joined by backslashes) of a fenced block without a language, or of `sh` or `bash`.
A block after a line such as `<!-- needs: slurm -->`, which readers do not see, is run only where that is at hand
(`--have slurm`): `slurm`, `hub` (the Hugging Face Hub), `gpu`, `network` (more than a package index), or another word.
A block after `<!-- example -->` shows what somebody would do with names of their own; it is neither run nor checked.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"

_BLOCK = re.compile(r"(?:^<!-- *(?P<mark>[^>]*?) *-->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_SHELLS = ("", "sh", "bash")
_BUILT_IN = (".", "cd", "echo", "export", "source")
_MADE_BY_RUNNING = ("results", "reports", "resources", "logs", ".venv")


@dataclass(frozen=True)
class Block:
    """A block of commands.

    Attributes:
        line: Of the text, counted from 1, at which it opens.
        needs: What must be at hand to run it; empty for a block that runs everywhere.
        text: The commands.
    """

    line: int
    needs: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Its commands, one line each, without comments."""
        joined = self.text.replace("\\\n", " ")
        return [line for line in map(_without_comment, joined.splitlines()) if line]


def blocks_of(text: str) -> list[Block]:
    """Returns the blocks of commands in a Markdown text, in their order."""
    found = []
    for match in _BLOCK.finditer(text):
        mark = match["mark"] or ""
        if match["language"] in _SHELLS and mark != "example":
            needs = mark.removeprefix("needs:").strip() if mark.startswith("needs:") else ""
            found.append(Block(text.count("\n", 0, match.start("language")) + 1, needs, match["text"]))
    return found


def _without_comment(line: str) -> str:
    return shlex.join(shlex.split(line, comments=True)) if "#" in line else line.strip()


# --- checks ----------------------------------------------------------------------------------------------------------


def faults(blocks: Sequence[Block], root: Path = ROOT) -> list[str]:
    """Returns what is wrong with the commands, one line each: programs, targets, flags and files that do not exist.

    Args:
        blocks: In the order of the text: what one command makes, the next may name.
        root: Of the checkout.
    """
    found: list[str] = []
    made: set[str] = set()
    for block in blocks:
        for command in block.commands:
            for words in _parts(command):
                found += [f"line {block.line}: {command}: {fault}" for fault in _faults(words, root, made)]
    return found


def _parts(command: str) -> Iterator[list[str]]:
    """Yields the simple commands of a line, as lists of words, without redirections and assignments in front."""
    words: list[str] = []
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();|&<>")
    lexer.whitespace_split = True
    skip = False
    for word in lexer:
        if set(word) <= set("();|&"):
            if words:
                yield words
            words = []
        elif set(word) <= set("<>"):
            skip = True
        elif skip:
            skip = False
        elif words or not re.match(r"\w+=", word):
            words.append(word)
    if words:
        yield words


def _faults(words: list[str], root: Path, made: set[str]) -> Iterator[str]:
    program, *rest = words
    if program == "cp" and len(rest) == 2:
        made.add(rest[1])
        rest = rest[:1]
    yield from _missing_files(rest, root, made)
    if program == "make":
        targets = re.findall(r"^(\w+):", (root / "Makefile").read_text(encoding="utf-8"), flags=re.M)
        yield from (f"no target {word} in the Makefile" for word in rest if "=" not in word and word not in targets)
    elif program == "snakemake":
        yield from _snakemake_faults(rest, root, made)
    elif words[:2] == ["python", "-m"] and rest[1].startswith("taps."):
        yield from _stage_faults(rest[1], rest[2:])
    elif program == "taps":
        yield from _stage_faults(f"taps.{rest[0]}", rest[1:])


def _missing_files(words: Sequence[str], root: Path, made: set[str]) -> Iterator[str]:
    for word in "=".join(words).split("="):
        top = word.split("/")[0]
        named = word.endswith((".yaml", ".yml", ".md")) or ("/" in word and top and (root / top).is_dir())
        if named and top not in _MADE_BY_RUNNING and word not in made and not (root / word).exists():
            yield f"no file {word}"


def _snakemake_faults(words: list[str], root: Path, made: set[str]) -> Iterator[str]:
    from snakemake.cli import get_argument_parser

    try:
        options = get_argument_parser().parse_args(words)
    except SystemExit:
        yield "snakemake does not take these options"
        return
    rules = {
        name
        for file in [root / "Snakefile", *(root / "workflow" / "rules").glob("*.smk")]
        for name in re.findall(r"^ *rule (\w+):", file.read_text(encoding="utf-8"), flags=re.M)
    }
    yield from (f"no rule {target}" for target in options.targets or [] if "/" not in target and target not in rules)
    for file in options.configfile or []:
        if str(file) not in made and not (root / file).is_file():
            yield f"no study {file}"


def _stage_faults(module: str, words: list[str]) -> Iterator[str]:
    try:
        parser = importlib.import_module(module).build_parser()
    except (ModuleNotFoundError, AttributeError):
        yield f"no command {module}"
        return
    try:
        parser.parse_args(words)
    except SystemExit as ended:
        if ended.code:
            yield f"{module} does not take these flags; see python -m {module} --help"


# --- running ---------------------------------------------------------------------------------------------------------


def script(blocks: Sequence[Block], have: Sequence[str]) -> str:
    """Returns a bash script of all blocks that can be run, in one shell, which stops at the first that fails."""
    lines = ["set -eo pipefail"]
    for block in blocks:
        if block.needs and block.needs not in have:
            lines.append(f"echo {shlex.quote(f'== line {block.line}: left out, needs {block.needs}')}")
            continue
        lines += [f"echo {shlex.quote(f'== line {block.line}')}; SECONDS=0", block.text, 'echo "== ${SECONDS} s"']
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Clones the checkout, runs README's commands there and exits with their status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="new folder for the clone")
    parser.add_argument("--have", nargs="*", default=[], help="what marked blocks need and is at hand")
    arguments = parser.parse_args(argv)
    subprocess.run(["git", "clone", "--quiet", ROOT, arguments.folder], check=True)
    text = (arguments.folder / "README.md").read_text(encoding="utf-8")
    foreign = {"PYTHONPATH", "VIRTUAL_ENV"}  # of whoever runs this
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    commands = script(blocks_of(text), arguments.have)
    sys.exit(subprocess.run(["bash", "-c", commands], cwd=arguments.folder, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
