"""A Hub on the loopback with one repository, `me/toy`, at one commit: what the libraries of the real one ask of it.

Other repositories can be made and written to; their large files arrive as on the real one, by LFS, the rest in commits.
"""

from __future__ import annotations

import base64
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
        uploaded: Repository that was made here -> name -> content.
        private: Those of them that were made private.
        url: Where it listens.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = dict(files)
        self.listed: list[str] = []
        self.failing: set[str] = set()
        self.tokens: set[str | None] = set()
        self.downloads: list[str] = []
        self.uploaded: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.objects: dict[str, bytes] = {}  # of LFS, by their hashes
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
        if (repo := path.removeprefix("/api/models/")) in self.hub.uploaded:
            return self.reply_json({"id": repo, "sha": REVISION, "tags": [], "siblings": []})
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

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.tokens.add(self.headers.get("Authorization"))
        path = unquote(self.path).partition("?")[0]
        if path == "/api/repos/create":
            return self.create(json.loads(body))
        if path == "/api/validate-yaml":
            return self.reply_json({"errors": [], "warnings": []})
        repo = "/".join(path.removeprefix("/api/models/").strip("/").split("/")[:2]).removesuffix(".git")
        if repo not in self.hub.uploaded:
            return self.reply(404, b"", {"X-Error-Code": "RepoNotFound"})
        if path.endswith("/preupload/main"):
            modes = {file["path"]: file["path"].endswith(".safetensors") for file in json.loads(body)["files"]}
            files = [
                {"path": name, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
                for name, large in modes.items()
            ]
            return self.reply_json({"files": files})
        if path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**item, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{item['oid']}", "header": {}}}}
                for item in json.loads(body)["objects"]
            ]
            return self.reply_json({"transfer": "basic", "objects": objects})
        self.commit(repo, [json.loads(line) for line in body.splitlines()])

    def do_PUT(self) -> None:
        self.hub.objects[self.path.rpartition("/")[2]] = self.rfile.read(int(self.headers["Content-Length"]))
        self.reply(200, b"", {})

    def create(self, asked: dict[str, Any]) -> None:
        repo = f"{asked.get('organization') or 'me'}/{asked['name']}"
        if repo == "other/toy":
            return self.reply(403, b"", {"X-Error-Message": "no rights to other"})
        self.hub.uploaded[repo] = {}
        self.hub.private |= {repo} if asked.get("visibility") == "private" else set()
        return self.reply_json({"url": f"{self.hub.url}/{repo}", "id": repo, "name": repo})

    def commit(self, repo: str, entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            value = entry["value"]
            if entry["key"] == "file":
                self.hub.uploaded[repo][value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                self.hub.uploaded[repo][value["path"]] = self.hub.objects[value["oid"]]
        self.reply_json({"commitUrl": f"{self.hub.url}/{repo}/commit/{REVISION}", "commitOid": REVISION})

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
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
