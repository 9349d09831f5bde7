"""README's commands exist: programs, targets, rules, flags and files. `tests.support.readme_commands` runs them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.readme_commands import README, Block, blocks_of, faults, script

TEXT = """
```
make smoke CORES=8    # two minutes
python -m taps.overlap --corpus a=x.jsonl \\
    --prompts b=y.jsonl --output o.json
```

<!-- needs: slurm -->
```sh
snakemake all
```

<!-- example -->
```
nothing --of-this exists
```

```yaml
study: mine
```
"""


def test_every_command_of_the_readme_exists() -> None:
    blocks = blocks_of(README.read_text(encoding="utf-8"))
    assert any("make study" in command for block in blocks for command in block.commands)
    assert faults(blocks) == []


def test_blocks_are_found_with_what_they_need() -> None:
    first, second = blocks_of(TEXT)
    assert first.commands == [
        "make smoke CORES=8",
        "python -m taps.overlap --corpus a=x.jsonl      --prompts b=y.jsonl --output o.json",
    ]
    assert (first.line, first.needs, second.needs) == (2, "", "slurm")
    assert faults([first, second]) == []


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("make everything", "no target everything"),
        ("snakemake --cores 2 everything", "no rule everything"),
        ("snakemake --coores 2 all", "does not take these options"),
        ("snakemake --cores 2 all --configfile mine.yaml", "no file mine.yaml"),
        ("python -m taps.overlap --corpora a=b", "does not take these flags"),
        ("cd /tmp && taps nothing", "no command taps.nothing"),
        ("cat mine/none.yaml > copy", "no file mine/none.yaml"),
    ],
)
def test_what_does_not_exist_is_found(command: str, fault: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = faults([Block(7, "", f"{command}\n")])
    assert found
    assert all(line.startswith(f"line 7: {command}: ") for line in found)
    assert fault in found[0]


def test_what_one_command_makes_the_next_may_name() -> None:
    text = "cp config.yaml mine.yaml\nsnakemake --cores 8 all --replace-workflow-config --configfile mine.yaml\n"
    assert faults([Block(1, "", text)]) == []


def test_blocks_run_in_one_shell_up_to_the_first_failure(tmp_path: Path) -> None:
    blocks = [
        Block(1, "", "X=5\n"),
        Block(4, "hub", "echo hub\n"),
        Block(7, "", "echo $X\nfalse\n"),
        Block(9, "", "ls\n"),
    ]
    done = subprocess.run(["bash", "-c", script(blocks, [])], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    lines = [line for line in done.stdout.splitlines() if not line.endswith(" s")]
    assert lines == ["== line 1", "== line 4: left out, needs hub", "== line 7", "5"]
    assert "hub" in subprocess.run(["bash", "-c", script(blocks[1:2], ["hub"])], capture_output=True, text=True).stdout
