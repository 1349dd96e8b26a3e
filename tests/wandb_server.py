"""A loopback W&B server for tests: what the real client needs for online runs, sync, sweeps, agents and Api reads.

    with WandbServer() as server:
        subprocess.run([...], env=server.environment())
        server.runs["run-id"].history

It stores what it is sent, hands out the trials of grid sweeps in Heartbeat replies, and records every GraphQL
operation it does not know in ``unknown``, so that a new client version shows what it asks for.
"""

import base64
import gzip
import itertools
import json
import os
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

ENTITY = "tester"
API_KEY = "0" * 40
TIME = "2024-01-01T00:00:00"
Json = dict[str, Any]


@dataclass
class StoredRun:
    """One run as the client sent it; ``history`` and ``summary`` are parsed, ``exit_code`` is None while it runs."""

    name: str
    project: str
    entity: str = ENTITY
    config: Json = field(default_factory=dict)
    summary: Json = field(default_factory=dict)
    history: list[Json] = field(default_factory=list)
    group: str | None = None
    tags: list[str] = field(default_factory=list)
    sweep: str | None = None
    display_name: str | None = None
    exit_code: int | None = None
    console: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        return "running" if self.exit_code is None else "crashed" if self.exit_code else "finished"

    def node(self) -> Json:
        """The run as any query may ask for it."""
        owner = {"id": "e", "name": self.entity}
        config = json.dumps({key: {"value": value} for key, value in self.config.items()})
        node = {"id": f"id-{self.name}", "name": self.name, "displayName": self.display_name or self.name}
        node |= {"projectId": "1", "project": {"id": "1", "name": self.project, "entity": owner}}
        node |= {"config": config, "summaryMetrics": json.dumps(self.summary), "systemMetrics": "{}"}
        node |= {"wandbConfig": '{"t": 1}'}  # says that the run was started: without it nothing resumes
        node |= {"sweepName": self.sweep, "state": self.state, "group": self.group, "tags": self.tags}
        node |= {"jobType": None, "commit": None, "description": "", "notes": None, "readOnly": False}
        node |= {"createdAt": TIME, "heartbeatAt": TIME, "user": {"name": ENTITY, "username": ENTITY}}
        node |= {"historyLineCount": len(self.history), "eventsLineCount": 0, "logLineCount": 0, "eventsTail": "[]"}
        node |= {"historyTail": json.dumps([json.dumps(row) for row in self.history[-1:]])}
        return node | {"historyKeys": self.history_keys()}

    def history_keys(self) -> Json:
        keys = {key: {"typeCounts": [{"type": "number", "count": 1}]} for row in self.history for key in row}
        return {"keys": keys, "lastStep": self.history[-1]["_step"] if self.history else -1, "sets": []}


@dataclass
class StoredSweep:
    """A grid sweep: its configuration and the trials not yet handed out."""

    name: str
    project: str
    config: Json
    state: str = "RUNNING"
    trials: list[Json] = field(default_factory=list)

    def node(self) -> Json:
        total = len(grid(self.config))
        owner = {"id": "e", "name": ENTITY}
        node = {"__typename": "Sweep", "id": self.name, "name": self.name, "displayName": self.name}
        node |= {
            "method": self.config.get("method", "grid"),
            "state": self.state,
            "config": yaml.safe_dump(self.config),
        }
        node |= {"description": None, "bestLoss": None, "controller": None, "scheduler": None}
        node |= {"createdAt": TIME, "updatedAt": TIME, "heartbeatAt": TIME, "earlyStopJobRunning": False}
        node |= {"runCount": total - len(self.trials), "runCountExpected": total}
        return node | {"project": {"id": "1", "name": self.project, "entity": owner}}


@dataclass
class StoredArtifact:
    """Files with a name that a run logged; complete once they are committed."""

    name: str
    kind: str
    run: str
    metadata: Json = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    is_committed: bool = False


def grid(config: Json) -> list[Json]:
    """Every point of a grid sweep as the agent's ``args``: {key: {"value": value}}."""
    parameters = config.get("parameters", {})
    choices = [spec["values"] if "values" in spec else [spec["value"]] for spec in parameters.values()]
    return [
        {key: {"value": value} for key, value in zip(parameters, point, strict=True)}
        for point in itertools.product(*choices)
    ]


class WandbServer:
    """The server's state and its answers, one method per GraphQL operation."""

    def __init__(self) -> None:
        self.runs: dict[str, StoredRun] = {}
        self.sweeps: dict[str, StoredSweep] = {}
        self.agents: dict[str, str] = {}
        self.artifacts: dict[str, StoredArtifact] = {}
        self.operations: list[str] = []
        self.unknown: list[tuple[str, Json]] = []
        self.lock = threading.Lock()
        owner = self

        class Handler(_Handler):
            server_state = owner

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def __enter__(self) -> "WandbServer":
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.http.shutdown()
        self.http.server_close()

    def environment(self) -> dict[str, str]:
        """The process environment with which a wandb client talks to this server and to nobody else."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
        own |= {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": API_KEY, "WANDB_ENTITY": ENTITY}
        own |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        return own | {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}

    def answer(self, query: str, variables: Json) -> Json | None:
        found = re.search(r"\b(?:query|mutation)\s+(\w+)", query)
        name = found.group(1) if found else "anonymous"
        with self.lock:
            self.operations.append(name)
            method = getattr(self, f"on_{name}", None)
            if method is None:
                self.unknown.append((name, variables))
                return None
            reply: Json = method(variables)
            return reply

    def receive_stream(self, run_name: str, body: Json) -> None:
        """A file_stream post: history lines by offset, the summary's newest line, and the exit code."""
        with self.lock:
            run = self.runs[run_name]
            for file, part in (body.get("files") or {}).items():
                lines = [json.loads(line) for line in part["content"]] if file.startswith("wandb-") else []
                if file == "wandb-history.jsonl":
                    run.history[part["offset"] :] = lines
                elif file == "wandb-summary.json" and lines:
                    run.summary = lines[-1]
                elif file == "output.log":
                    run.console += part["content"]
            if body.get("complete"):
                run.exit_code = body.get("exitcode", 0)

    def project(self, **content: Any) -> Json:
        return {"project": {"id": "1", "internalId": "1", "readOnly": False, **content}}

    def on_Viewer(self, variables: Json) -> Json:
        teams = {"edges": [{"node": {"name": ENTITY}}]}
        return {"viewer": {"id": "u", "entity": ENTITY, "username": ENTITY, "email": "", "flags": "{}", "teams": teams}}

    on_GetViewer = on_Viewer
    on_GetDefaultEntity = on_Viewer

    def on_ServerFeaturesQuery(self, variables: Json) -> Json:
        return {"serverInfo": {"features": []}}

    def on_OrganizationCoreWeaveOrganizationID(self, variables: Json) -> Json:
        return {"entity": None}

    def on_UpsertBucket(self, variables: Json) -> Json:
        name = variables.get("name") or str(variables.get("id", "")).removeprefix("id-")
        inserted = name not in self.runs
        project, entity = variables.get("project") or "uncategorized", variables.get("entity") or ENTITY
        run = self.runs.setdefault(name, StoredRun(name, project, entity))
        if variables.get("config"):
            run.config = {key: entry["value"] for key, entry in json.loads(variables["config"]).items()}
        sent = {"groupName": "group", "tags": "tags", "sweep": "sweep", "displayName": "display_name"}
        for key, attribute in sent.items():
            if variables.get(key):
                setattr(run, attribute, variables[key])
        return {"upsertBucket": {"bucket": run.node(), "inserted": inserted}}

    def on_RunResumeStatus(self, variables: Json) -> Json:
        run = self.runs.get(variables["name"])
        entity = {"id": "e", "name": ENTITY}
        bucket = run.node() if run else None
        return {"model": {"id": "1", "name": variables["project"], "entity": entity, "bucket": bucket}}

    def on_CreateRunFiles(self, variables: Json) -> Json:
        files = [{"name": file, "uploadUrl": f"{self.url}/upload"} for file in variables["files"]]
        return {"createRunFiles": {"runID": f"id-{variables['run']}", "uploadHeaders": [], "files": files}}

    def on_MarkRunFilesUploaded(self, variables: Json) -> Json:
        return {"markRunFilesUploaded": {"success": True}}

    def on_GetProject(self, variables: Json) -> Json:
        return self.project(name=variables["name"], entityName=ENTITY, createdAt=TIME, isBenchmark=False)

    def on_Runs(self, variables: Json) -> Json:
        wanted = json.loads(variables.get("filters") or "{}").get("sweep")
        runs = [run for run in self.runs.values() if run.project == variables["project"]]
        edges = [{"node": run.node(), "cursor": run.name} for run in runs if wanted in (None, run.sweep)]
        page = {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}
        return self.project(runCount=len(edges), runs=page)

    def on_Run(self, variables: Json) -> Json:
        return self.project(run=self.runs[variables["name"]].node())

    on_RunState = on_Run
    on_RunHistoryKeys = on_Run

    def on_RunParquetHistory(self, variables: Json) -> Json:
        return self.project(run={"parquetHistory": {"parquetUrls": [], "liveData": []}})

    def on_HistoryPage(self, variables: Json) -> Json:
        first, stop = variables["minStep"], variables["maxStep"]
        rows = [json.dumps(row) for row in self.runs[variables["run"]].history if first <= row["_step"] < stop]
        return self.project(run={"history": rows})

    def on_ArtifactType(self, variables: Json) -> Json:
        return self.project(artifact=None)

    def on_CreateArtifact(self, variables: Json) -> Json:
        sent = variables["input"]
        artifact = StoredArtifact(sent["artifactCollectionName"], sent["artifactTypeName"], sent["runName"])
        artifact.metadata = json.loads(sent["metadata"] or "{}")
        self.artifacts[artifact.name] = artifact
        sequence = {"id": artifact.name, "latestArtifact": None}
        node = {"id": artifact.name, "state": "PENDING", "artifactSequence": sequence}
        return {"createArtifact": {"artifact": node}}

    def on_CreateArtifactManifest(self, variables: Json) -> Json:
        return {"createArtifactManifest": self.manifest(variables)}

    def on_UpdateArtifactManifest(self, variables: Json) -> Json:
        return {"updateArtifactManifest": self.manifest(variables)}

    def manifest(self, variables: Json) -> Json:
        name = variables.get("name") or "wandb_manifest.json"
        file = {"id": name, "name": name, "displayName": name, "uploadHeaders": [], "uploadUrl": f"{self.url}/upload"}
        return {"artifactManifest": {"id": variables.get("artifactManifestID") or name, "file": file}}

    def on_CreateArtifactFiles(self, variables: Json) -> Json:
        nodes = []
        for spec in variables["input"]["artifactFiles"] if "input" in variables else variables["artifactFiles"]:
            place = f"{spec['artifactID']}/{spec['name']}"
            node = {"id": place, "name": spec["name"], "displayName": spec["name"], "storagePath": place}
            node |= {"uploadUrl": f"{self.url}/artifact/{place}", "uploadHeaders": [], "uploadMultipartUrls": None}
            nodes.append({"node": node | {"artifact": {"id": spec["artifactID"]}}})
        return {"createArtifactFiles": {"files": {"edges": nodes}}}

    def on_CommitArtifact(self, variables: Json) -> Json:
        self.artifacts[variables["artifactID"]].is_committed = True
        return {"commitArtifact": {"artifact": {"id": variables["artifactID"], "digest": ""}}}

    def on_UpsertSweep(self, variables: Json) -> Json:
        sweep = self.sweeps.get(variables.get("id") or "")
        if sweep is None:
            config = yaml.safe_load(variables["config"])
            project = variables.get("projectName") or "uncategorized"
            sweep = StoredSweep(f"sweep{len(self.sweeps)}", project, config, trials=grid(config))
            self.sweeps[sweep.name] = sweep
        sweep.state = variables.get("state") or sweep.state
        return {"upsertSweep": {"sweep": sweep.node(), "configValidationWarnings": []}}

    def on_GetSweep(self, variables: Json) -> Json:
        sweep = self.sweeps.get(variables.get("sweep") or variables.get("name") or "")
        if sweep is None:
            return self.project(sweep=None)
        runs = [{"node": {**run.node(), "sampledHistory": []}} for run in self.runs.values() if run.sweep == sweep.name]
        return self.project(sweep={**sweep.node(), "runs": {"edges": runs}})

    on_SweepWithRuns = on_GetSweep
    on_GetSweepState = on_GetSweep

    def on_CreateAgent(self, variables: Json) -> Json:
        agent = f"agent{len(self.agents)}"
        self.agents[agent] = variables["sweep"]
        return {"createAgent": {"agent": {"id": agent}}}

    def on_Heartbeat(self, variables: Json) -> Json:
        """The next trial when the agent's runs have ended, then ``exit``."""
        sweep = self.sweeps[self.agents[variables["id"]]]
        commands: list[Json] = []
        if "running" not in json.loads(variables.get("runState") or "{}").values():
            if sweep.trials and sweep.state == "RUNNING":
                run_id = f"{sweep.name}-{len(grid(sweep.config)) - len(sweep.trials)}"
                program, args = sweep.config.get("program"), sweep.trials.pop(0)
                commands = [{"type": "run", "run_id": run_id, "program": program, "args": args}]
            else:
                commands = [{"type": "exit"}]
        return {"agentHeartbeat": {"agent": {"id": variables["id"]}, "commands": json.dumps(commands)}}


class _Handler(BaseHTTPRequestHandler):
    server_state: WandbServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        expected = "Basic " + base64.b64encode(f"api:{API_KEY}".encode()).decode()
        stream = re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", self.path)
        if self.headers.get("Authorization") != expected:
            self.reply(401, {"error": "unauthorized"})
        elif self.path == "/graphql":
            request = json.loads(body)
            data = self.server_state.answer(request["query"], request.get("variables") or {})
            known = data is not None
            self.reply(
                200 if known else 400, {"data": data} if known else {"errors": [{"message": "unknown operation"}]}
            )
        elif stream:
            self.server_state.receive_stream(stream.group(1), json.loads(body))
            self.reply(200, {})
        else:
            self.reply(404, {"error": f"no {self.path}"})

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if found := re.fullmatch(r"/artifact/([^/]+)/(.+)", self.path):
            self.server_state.artifacts[found.group(1)].files[found.group(2)] = content
        self.reply(200, {})

    def reply(self, code: int, content: Json) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Silence: pytest shows what fails."""
