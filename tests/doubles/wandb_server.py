"""A loopback stand-in of the W&B API: enough for the real `wandb sync`, and strict about what arrived.

    with WandbServer() as server:
        subprocess.run([...,"wandb", "sync", folder], env=server.client_env(tmp_path))
        run = server.runs["my-run-id"]
        assert run.arrived_steps == list(range(100))   # every step, once, in order
        assert run.once

The protocol is what the client sends (watched on wandb 0.31): GraphQL on `/graphql`, history and console
as numbered lines on `/files/<entity>/<project>/<run>/file_stream`, files as PUTs to the URLs that
`CreateRunFiles` hands out. An operation the stand-in does not know is answered with a GraphQL error and kept
in `server.unknown`. Artifacts are not covered.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

from tests.doubles.wandb_run import ENTITY, HISTORY, Run

API_KEY = "0123456789" * 4
HANG = -1


@dataclass(frozen=True)
class Request:
    """One request as answered."""

    method: str
    path: str
    operation: str
    """The GraphQL operation, or an empty string."""
    status: int
    """0 for a connection that was dropped on purpose."""


@dataclass
class Fault:
    """Answers requests whose `METHOD path operation` contains `match` wrongly."""

    match: str
    status: int
    """HTTP status to answer with; 0 drops the connection, and `HANG` never answers."""
    after: int = 0
    """Matching requests to let through first."""
    count: int | None = None
    """How many requests to spoil; None means all."""
    seen: int = 0

    def hits(self, label: str) -> bool:
        if self.match not in label:
            return False
        self.seen += 1
        return self.seen > self.after and (self.count is None or self.seen <= self.after + self.count)


class WandbServer:
    """The stand-in, listening on a free loopback port between `with` and its end."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        """Runs by W&B run id."""
        self.requests: list[Request] = []
        self.unknown: list[str] = []
        """GraphQL operations that could not be answered."""
        self.faults: list[Fault] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), _handler_for(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def client_env(self, home: Path) -> dict[str, str]:
        """Environment variables that send a wandb client here and keep its own files in `home`."""
        return {
            "WANDB_BASE_URL": self.url,
            "WANDB_API_KEY": API_KEY,
            "WANDB_ERROR_REPORTING": "false",
            "WANDB_CONFIG_DIR": str(home / "wandb-config"),
            "WANDB_CACHE_DIR": str(home / "wandb-cache"),
            "WANDB_DATA_DIR": str(home / "wandb-data"),
            "HOME": str(home),
        }

    def fail(self, match: str, status: int, *, after: int = 0, count: int | None = None) -> Fault:
        """Spoil matching requests from now on; see Fault. Clear with `server.faults.clear()`."""
        fault = Fault(match, status, after, count)
        self.faults.append(fault)
        return fault

    def operations(self) -> Counter[str]:
        """How often each GraphQL operation was asked, answered or not."""
        return Counter(request.operation for request in self.requests if request.operation)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer one request: (status, JSON object); status 0 means drop the connection."""
        call = json.loads(body) if path == "/graphql" else {}
        operation = _operation(call)
        with self._lock:
            label = f"{method} {path} {operation}"
            fault = next((fault for fault in self.faults if fault.hits(label)), None)
            if fault:
                message = f"injected {fault.status}"
                status, reply = fault.status, {"error": message, "errors": [{"message": message}]}
            elif operation:
                status, reply = 200, self._graphql(operation, call.get("variables") or {})
            else:
                status, reply = self._transfer(method, path, body)
            self.requests.append(Request(method, path, operation, status))
        return status, reply

    def _graphql(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        answers = {
            "Viewer": self._viewer,
            "ServerInfo": self._server_info,
            "ServerFeaturesQuery": self._server_info,
            "RunResumeStatus": self._resume_status,
            "UpsertBucket": self._upsert,
            "CreateRunFiles": self._create_files,
            "RunStoppedStatus": self._stopped,
        }
        if operation not in answers:
            self.unknown.append(operation)
            return {"data": None, "errors": [{"message": f"the stand-in does not know {operation}"}]}
        return {"data": answers[operation](variables)}

    def _viewer(self, variables: dict[str, Any]) -> dict[str, Any]:
        user = {"id": "u1", "entity": ENTITY, "username": ENTITY, "email": "a@example.org", "flags": "{}"}
        return {"viewer": user | {"teams": {"edges": []}}}

    def _server_info(self, variables: dict[str, Any]) -> dict[str, Any]:
        versions = {"cliVersionInfo": {"max_cli_version": "99.0.0"}, "latestLocalVersionInfo": None}
        return {"serverInfo": versions | {"features": []}}

    def _resume_status(self, variables: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get(variables["name"])
        return {"model": _project(variables) | {"bucket": run and run.resume_bucket()}}

    def _stopped(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {"project": {"run": {"stopped": False}}}

    def _upsert(self, variables: dict[str, Any]) -> dict[str, Any]:
        run = self._run(variables.get("entity"), variables.get("project"), variables["name"])
        run.upserts += 1
        run.attributes.update({k: v for k, v in variables.items() if v is not None and k != "config"})
        if variables.get("config"):
            run.raw_config = json.loads(variables["config"])
        bucket = {
            "id": f"Run:{run.name}",
            "name": run.name,
            "displayName": run.attributes.get("displayName", run.name),
            "description": None,
            "config": json.dumps(run.raw_config),
            "sweepName": None,
            "project": _project({"entity": run.entity, "project": run.project}),
            "historyLineCount": run.line_count(HISTORY),
        }
        return {"upsertBucket": {"bucket": bucket, "inserted": run.upserts == 1}}

    def _create_files(self, variables: dict[str, Any]) -> dict[str, Any]:
        base = f"{self.url}/put/{variables['entity']}/{variables['project']}/{variables['run']}"
        files = [{"name": name, "uploadUrl": f"{base}/{name}"} for name in variables["files"]]
        return {"createRunFiles": {"runID": variables["run"], "uploadHeaders": [], "files": files}}

    def _transfer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if method == "POST" and (match := re.fullmatch(r"/files/([^/]+)/([^/]+)/([^/]+)/file_stream", path)):
            self._run(*match.groups()).stream(json.loads(body))
            return 200, {"exitcode": None, "limits": {}}
        if method == "PUT" and (match := re.fullmatch(r"/put/([^/]+)/([^/]+)/([^/]+)/(.+)", path)):
            self._run(*match.groups()[:3]).files[match[4]] = body
            return 200, {}
        return 404, {"error": "not found"}

    def _run(self, entity: str | None, project: str | None, name: str) -> Run:
        return self.runs.setdefault(name, Run(entity or ENTITY, project or "uncategorized", name))


def _operation(call: dict[str, Any]) -> str:
    named = re.search(r"(?:query|mutation)\s+(\w+)", call.get("query", ""))
    return call.get("operationName") or (named[1] if named else "")


def _project(variables: dict[str, Any]) -> dict[str, Any]:
    entity = {"id": "e1", "name": variables.get("entity") or ENTITY}
    return {"id": "p1", "name": variables.get("project"), "entity": entity}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients reset idle connections when they exit; that is no fault of the test."""


def _handler_for(server: WandbServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
            """Keep requests out of the test output; they are in `server.requests`."""

        def handle_request(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            status, reply = server.answer(self.command, unquote(self.path.split("?")[0]), body)
            if status == HANG:
                server.ended.wait()
                status = 0
            if status == 0:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = handle_request  # noqa: N815 - the base class names them

    return Handler
