"""A hub of a test's own: the endpoints that huggingface_hub calls to push and to fetch.

Repositories are kept as dictionaries of bytes per commit. Large files come through git-LFS: asked
for in a batch, sent by PUT, verified, then named in the commit by their sha256.
"""

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field

import yaml
from werkzeug.wrappers import Request, Response

TOKEN = "hf_of-this-test"


@dataclass
class Hub:
    """What was pushed, and everything that was asked."""

    address: str = ""
    private: dict[str, bool] = field(default_factory=dict)
    commits: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    verified: set[str] = field(default_factory=set)
    readonly: bool = False
    broken: bool = False  # its storage refuses large files

    def head(self, repository: str) -> str:
        return list(self.commits[repository])[-1]

    def files(self, repository: str) -> dict[str, bytes]:
        return self.commits[repository][self.head(repository)]

    def __call__(self, request: Request) -> Response:
        known = request.headers.get("Authorization") == f"Bearer {TOKEN}"
        if request.method == "POST" and request.path != "/api/validate-yaml" and not known:
            return Response(status=401)
        for pattern, answer in self.routes.items():
            if match := re.fullmatch(pattern, f"{request.method} {request.path}"):
                return answer(self, request, *match.groups())
        return Response(f"no endpoint {request.method} {request.path}", status=500)

    def create(self, request: Request) -> Response:
        asked = request.get_json()
        name = f"{asked['organization']}/{asked['name']}"
        if self.readonly:
            return Response(status=403)
        if name in self.commits:
            return _json({"error": "you have it", "url": f"{self.address}/{name}"}, 409)
        self.private[name] = asked.get("visibility") == "private" or asked.get("private") is True
        self.commits[name] = {"0" * 40: {}}
        return _json({"url": f"{self.address}/{name}"})

    def info(self, request: Request, name: str) -> Response:
        if name not in self.commits:
            return Response(status=404, headers={"X-Error-Code": "RepoNotFound"})
        return _json({"id": name, "private": self.private[name], "sha": self.head(name)})

    def check_yaml(self, request: Request) -> Response:
        text = request.get_json()["content"]
        front = yaml.safe_load(text.split("---\n")[1])
        faults = [] if front.get("model-index") else [{"message": "no results"}]
        return _json({"errors": faults, "warnings": []})

    def preupload(self, request: Request, name: str) -> Response:
        files = request.get_json()["files"]
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                "shouldIgnore": False,
            }
            for file in files
        ]
        return _json({"files": modes})

    def batch(self, request: Request, name: str) -> Response:
        objects = []
        for item in request.get_json()["objects"]:
            actions = {
                "upload": {"href": f"{self.address}/storage/{item['oid']}"},
                "verify": {"href": f"{self.address}/verify"},
            }
            objects.append({**item, "actions": actions})
        return _json({"transfer": "basic", "objects": objects})

    def store(self, request: Request, oid: str) -> Response:
        if self.broken:
            return Response("no space", status=413)
        self.large[oid] = request.get_data()
        return Response()

    def verify(self, request: Request) -> Response:
        asked = request.get_json()
        data = self.large[asked["oid"]]
        right = (hashlib.sha256(data).hexdigest(), len(data)) == (asked["oid"], asked["size"])
        self.verified |= {asked["oid"]} if right else set()
        return Response(status=200 if right else 422)

    def commit(self, request: Request, name: str) -> Response:
        files = dict(self.files(name))
        for line in request.get_data().splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                assert value["oid"] in self.verified
                files[value["path"]] = self.large[value["oid"]]
        oid = hashlib.sha1(repr((name, files)).encode()).hexdigest()
        self.commits[name][oid] = files
        return _json({"commitUrl": f"{self.address}/{name}/commit/{oid}", "commitOid": oid})

    def resolve(self, request: Request, name: str, revision: str, file: str) -> Response:
        found = self.commits.get(name, {})
        if not found:
            return Response(status=404, headers={"X-Error-Code": "RepoNotFound"})
        oid = self.head(name) if revision == "main" else revision
        data = found.get(oid, {}).get(file)
        headers = {"X-Repo-Commit": oid}
        if data is None:
            return Response(status=404, headers=headers | {"X-Error-Code": "EntryNotFound"})
        headers["ETag"] = f'"{hashlib.sha256(data).hexdigest()}"'
        return Response(data, headers=headers, mimetype="application/octet-stream")

    routes = {  # noqa: RUF012 - a table of the methods above
        r"POST /api/repos/create": create,
        r"GET /api/models/([\w.-]+/[\w.-]+)": info,
        r"POST /api/validate-yaml": check_yaml,
        r"POST /api/models/([\w.-]+/[\w.-]+)/preupload/main": preupload,
        r"POST /([\w.-]+/[\w.-]+)\.git/info/lfs/objects/batch": batch,
        r"PUT /storage/(\w+)": store,
        r"POST /verify": verify,
        r"POST /api/models/([\w.-]+/[\w.-]+)/commit/main": commit,
        r"(?:GET|HEAD) /([\w.-]+/[\w.-]+)/resolve/(\w+)/([\w.-]+)": resolve,
    }


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status, mimetype="application/json")
