"""A Hub on the loopback with one repository, `me/toy`, at one commit: what the libraries of the real one ask of it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

REVISION = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """What the repository holds and what was asked of it.

    Attributes:
        files: Name -> content.
        listed: Names that a listing gives beside the files', which are not there.
        failing: Names whose first download fails with 503.
        tokens: Values of the Authorization headers.
        downloads: Names in the order of their downloads.
        url: Where it listens.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = dict(files)
        self.listed: list[str] = []
        self.failing: set[str] = set()
        self.tokens: set[str | None] = set()
        self.downloads: list[str] = []
        self.url = ""

    def environment(self, home: Path) -> dict[str, str]:
        """Returns the variables that make a process ask this Hub, with its caches in a folder `home`."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home / "home"),
            "HF_TOKEN": "hf_secret",
            "HF_HUB_DISABLE_XET": "1",
            "NO_PROXY": "127.0.0.1",
        }

    def tree(self, folder: str, *, recursive: bool) -> list[dict[str, Any]]:
        """Returns the listing of a folder, files and, unless recursive, folders."""
        entries: dict[str, dict[str, Any]] = {}
        for name in [*self.files, *self.listed]:
            if folder and not name.startswith(f"{folder}/"):
                continue
            rest = name.removeprefix(f"{folder}/") if folder else name
            if "/" in rest and not recursive:
                path = name.removesuffix(rest) + rest.split("/")[0]
                entries[path] = {"type": "directory", "path": path, "oid": "0" * 40}
            else:
                size = len(self.files.get(name, b""))
                entries[name] = {"type": "file", "path": name, "size": size, "oid": "0" * 40}
        return list(entries.values())


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Yields the Hub while it listens on a port of the loopback."""

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, _, query = unquote(self.path).partition("?")
        if "/me/toy" not in path:
            return self.reply(404, b"", {"X-Error-Code": "RepoNotFound"})
        self.hub.tokens.add(self.headers.get("Authorization"))
        if REVISION not in path:
            return self.reply(404, b"", {"X-Error-Code": "RevisionNotFound"})
        if "/tree/" in path:
            folder = path.partition(f"/tree/{REVISION}")[2].strip("/")
            return self.reply_json(self.hub.tree(folder, recursive="recursive=true" in query.lower()))
        if path.startswith("/api/"):
            siblings = [{"rfilename": name} for name in self.hub.files]
            return self.reply_json({"id": "me/toy", "sha": REVISION, "tags": [], "siblings": siblings})
        return self.reply_file(path.partition(f"/resolve/{REVISION}/")[2])

    def reply_file(self, name: str) -> None:
        if name not in self.hub.files:
            return self.reply(404, b"", {"X-Error-Code": "EntryNotFound"})
        if self.command == "GET":
            if name in self.hub.failing:
                self.hub.failing.discard(name)
                return self.reply(503, b"", {})
            self.hub.downloads.append(name)
        content = self.hub.files[name]
        headers = {"X-Repo-Commit": REVISION, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        if asked := self.headers.get("Range"):
            first, _, last = asked.partition("=")[2].partition("-")
            start, end = int(first), min(int(last or len(content)), len(content) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            return self.reply(206, content[start : end + 1], headers)
        return self.reply(200, content, headers)

    def reply_json(self, content: Any) -> None:
        self.reply(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
