"""What workflow/rules/assets.smk asks: where an asset comes from and lies, and what the target is made from.

An asset is one file, resources/<asset>/<file>, or one folder, resources/<asset>/folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from taps.study.contents import Config
from taps.study.flags import as_json, flags


def is_folder(config: Config, asset: str, root: Path) -> bool:
    """Returns whether an asset is a folder; `root` is what its local path is relative to."""
    source = config["assets"][asset]
    if source.get("split"):
        return False
    if source.get("path"):
        return (root / source["path"]).is_dir()
    return source.get("file") is None


def asset_path(config: Config, asset: str, root: Path) -> str:
    """Returns where an asset lies once it is fetched."""
    source = config["assets"][asset]
    if source.get("split"):
        return f"resources/{asset}/{source['split']}.jsonl"
    name = "folder" if is_folder(config, asset, root) else Path(source.get("file") or source["path"]).name
    return f"resources/{asset}/{name}"


def local_source(config: Config, asset: str, root: Path) -> list[str]:
    """Returns the local path that an asset names, so that editing it counts as a change; nothing for other kinds."""
    path = config["assets"][asset].get("path")
    return [os.path.relpath(root / path)] if path else []


def fetch_flags(config: Config, asset: str, root: Path) -> list[str]:
    """Returns what `taps.fetch` is told."""
    source = config["assets"][asset]
    if source.get("path"):
        where = flags(path=os.path.relpath(root / source["path"]))
    elif source.get("hub"):
        where = flags(**{name: source.get(name) for name in ("hub", "revision", "repo_type", "file")})
    else:
        where = flags(**{name: source.get(name) for name in ("package", "version", "file")})
    return where + flags(**{name: source.get(name) for name in ("config", "split", "rows", "sha256")})


def chat_template(config: Config, root: Path) -> list[str]:
    """Returns the Jinja file that replaces the target's chat template, if the study names one."""
    path = config["target"]["chat_template"]
    return [os.path.relpath(root / path)] if path else []


def template_flags(config: Config) -> list[str]:
    """Returns what `taps.prepare_target` is told of the chat template's options and date."""
    target = config["target"]
    options = [f"{name}={as_json(value)}" for name, value in sorted(target["template_options"].items())]
    return flags(template_option=options, date=target["date"])
