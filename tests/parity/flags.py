"""Compares the responses of Weir with those of Unleash Edge 19.15.1, request by request.

    python3 tests/parity/flags.py WEIR EDGE               both run
    python3 tests/parity/flags.py WEIR FILE               with responses that a file keeps
    python3 tests/parity/flags.py --record EDGE FILE      keeps them

WEIR and EDGE are addresses such as http://127.0.0.1:3063. The lane `flags` compares with `flags-small.json` and `flags-large.json`, for
Unleash Edge takes a quarter of an hour to build (`cargo xtask setup flags-peer`). Both programs stand in front of the lab's origin with the
same backend token, for example:

    weir lab origin flags --data small &
    unleash-edge -w 1 --port 3064 edge --strict --upstream-url http://127.0.0.1:4242 --tokens '*:development.lab-backend' &
    weir run --config flags.toml &

`flags.toml` is the smallest file of docs/guide/flags.md with all words of `backstage`, for Edge has all endpoints of operators by default.

Each request is sent to both, with status, the header fields that matter to SDKs, and the body compared as JSON. DIFFERENCES names the fields
of each request that may differ, the status that Weir must send there, and the reason. Any other difference is a fault, and so is an entry
without a difference: the exit status is 1 then.
"""

import hashlib
import json
import sys
import urllib.error
import urllib.request

BACKEND, FRONTEND = "*:development.lab-backend", "*:development.lab-frontend"
FIELDS = ("content-type", "etag", "access-control-allow-origin", "cache-control", "retry-after", "allow")
JSON = {"Content-Type": "application/json"}
METRICS = {
    "appName": "parity",
    "instanceId": "one",
    "bucket": {"start": "2026-01-01T00:00:00Z", "stop": "2026-01-01T00:01:00Z", "toggles": {"flag-1": {"yes": 1, "no": 2}}},
}
APPLICATION = {"appName": "parity", "instanceId": "one", "interval": 15000, "started": "2026-01-01T00:00:00Z", "strategies": ["default"]}
LATENCY = {"avg": 1.0, "count": 1, "p99": 1.0}
EDGE = {
    "identifier": "two",
    "appName": "parity",
    "edgeVersion": "19.15.1",
    "started": "2026-01-01T00:00:00Z",
    "traffic": {"cachedResponses": {}, "get": {}, "post": {}, "accessDenied": {}},
    "latencyUpstream": {"features": LATENCY, "metrics": LATENCY, "edge": LATENCY},
    "connectedStreamingClients": 0,
    "connectedEdges": [],
    "requestsSinceLastReport": {},
    "connectionConsumptionSinceLastReport": {"features": [], "metrics": []},
    "requestConsumptionSinceLastReport": [],
}
CONTEXTS = ["", "?userId=7", "?userId=7&sessionId=s&appName=a&properties[plan]=pro", "?userId=7&properties%5Bplan%5D=free", "?environment=other"]
# Paths that evaluate flags, and the prefixes of reports with a token for each.
FRONTENDS = ["/api/frontend", "/api/proxy", "/api/frontend/all", "/api/proxy/all"]
REPORTS = {"/api/client": BACKEND, "/api/frontend/client": FRONTEND, "/api/proxy/client": FRONTEND}
# A larger body is kept as its hash: 2,500 bytes are enough for all documents of the small set, and the files stay readable.
KEPT_BYTES_MAX = 2500


def requests(flag):
    """Name, method, path, token, fields, body. `flag`: the name of one that the data set has."""
    client, front = "/api/client/features", "/api/frontend"
    yield "features", "GET", client, BACKEND, {}, None
    yield "features, prefix", "GET", f"{client}?namePrefix={flag[:-1]}", BACKEND, {}, None
    yield "features, prefix of none", "GET", f"{client}?namePrefix=zzz", BACKEND, {}, None
    yield "feature by name", "GET", f"{client}/{flag}", BACKEND, {}, None
    yield "feature by the beginning of a name", "GET", f"{client}/{flag[:-1]}", BACKEND, {}, None
    yield "feature that is not there", "GET", f"{client}/zzz", BACKEND, {}, None
    yield "features, POST", "POST", client, BACKEND, JSON, {}
    yield "features, tag of before", "GET", client, BACKEND, {"If-None-Match": "{features}"}, None
    yield "features, tag of another", "GET", client, BACKEND, {"If-None-Match": "\"another\""}, None
    yield "features, HEAD", "HEAD", client, BACKEND, {}, None
    yield "delta", "GET", "/api/client/delta", BACKEND, {}, None
    yield "streaming, HEAD", "HEAD", "/api/client/streaming", BACKEND, {}, None
    for token, name in [
        ("", "no token"),
        ("nonsense", "a malformed token"),
        ("*:development.unknown-token", "an unknown token"),
        (FRONTEND, "a frontend token"),
        ("*:production.lab-backend", "a token of another environment"),
    ]:
        yield f"features, {name}", "GET", client, token, {}, None
    for token, name in [("", "no token"), (BACKEND, "a backend token"), ("*:production.lab-frontend", "a token of another environment")]:
        yield f"frontend, {name}", "GET", front, token, {}, None
    for path in FRONTENDS:
        for context in CONTEXTS:
            yield f"{path}{context}", "GET", f"{path}{context}", FRONTEND, {}, None
        yield f"{path}, POST", "POST", path, FRONTEND, JSON, {"userId": "7", "properties": {"plan": "pro"}}
        yield f"{path}, POST with a wrapper", "POST", path, FRONTEND, JSON, {"context": {"userId": "7"}}
        yield f"{path}, POST of no JSON", "POST", path, FRONTEND, JSON, "{"
    yield "frontend, tag of before", "GET", front, FRONTEND, {"If-None-Match": "{/api/frontend}"}, None
    yield "unknown names in a query", "GET", "/api/frontend?userId=7&plan=free", FRONTEND, {}, None
    for word, name in [("that is there", flag), ("that is not there", "zzz")]:
        yield f"frontend feature {word}", "GET", f"/api/frontend/features/{name}?userId=7", FRONTEND, {}, None
        yield f"frontend feature {word}, POST", "POST", f"/api/frontend/features/{name}", FRONTEND, JSON, {"userId": "7"}
    for path, token in REPORTS.items():
        yield f"{path}/metrics", "POST", f"{path}/metrics", token, JSON, METRICS
        yield f"{path}/metrics of no JSON", "POST", f"{path}/metrics", token, JSON, "{"
        yield f"{path}/register", "POST", f"{path}/register", token, JSON, APPLICATION
    for path in ["/api/frontend/all/client", "/api/proxy/all/client"]:
        yield f"{path}/metrics", "POST", f"{path}/metrics", FRONTEND, JSON, METRICS
    yield "metrics, a frontend token", "POST", "/api/client/metrics", FRONTEND, JSON, METRICS
    yield "metrics, no token", "POST", "/api/client/metrics", "", JSON, METRICS
    yield "metrics of another edge", "POST", "/api/client/metrics/edge", BACKEND, JSON, EDGE
    yield "bulk metrics", "POST", "/api/client/metrics/bulk", BACKEND, JSON, {"applications": [APPLICATION], "metrics": []}
    yield "validate", "POST", "/edge/validate", "", JSON, {"tokens": [BACKEND, "*:development.unknown-token"]}
    for word in ["health", "ready", "metrics", "features", "tokens", "metricsbatch", "instancedata", "info", "nothing"]:
        yield f"backstage {word}", "GET", f"/internal-backstage/{word}", "", {}, None
    yield "OpenAPI", "GET", "/api-doc/openapi.json", "", {}, None
    yield "preflight", "OPTIONS", front, "", {"Origin": "https://a.example", "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}, None
    yield "cross-origin", "GET", front, FRONTEND, {"Origin": "https://a.example"}, None
    yield "no such path", "GET", "/api/nothing", BACKEND, {}, None
    yield "another method", "DELETE", client, BACKEND, {}, None


# Reason, fields that differ, the status of Weir if it differs, and the names of the requests.
CONTENT = ("body", "content-type")
DIFFERENCES = [
    ("Edge 19.15.1 returns the first flag whose name begins so; Edge 20 and Weir are exact", (*CONTENT, "status"), 404, ["feature by the beginning of a name"]),
    ("Edge 20 has it, 19.15.1 has not", (*CONTENT, "status"), 200, ["features, POST"]),
    ("Weir has HEAD wherever it has GET", ("content-type", "status"), 200, ["features, HEAD"]),
    ("Edge has deltas only where its upstream streams them; Weir makes them itself", (*CONTENT, "status"), 200, ["delta"]),
    ("Edge has streams only where its upstream has; Weir makes them itself", ("cache-control", "content-type", "status"), 200, ["streaming, HEAD"]),
    (
        "Weir's 403 and 404 have no body: they must not say which part of a token is wrong",
        CONTENT,
        None,
        [
            "feature that is not there",
            "features, no token",
            "features, a malformed token",
            "features, a token of another environment",
            "frontend, no token",
            "frontend feature that is not there",
            "frontend feature that is not there, POST",
            "metrics, no token",
        ],
    ),
    ("Edge says 511 where it has no flags; Weir says 403, for no token of its start covers the token", (*CONTENT, "status"), 403, ["frontend, a token of another environment"]),
    (
        "a refusal has other words, and Weir's are JSON everywhere",
        CONTENT,
        None,
        [f"{path}, POST of no JSON" for path in FRONTENDS] + [f"{path}/metrics of no JSON" for path in REPORTS],
    ),
    ("`client` is the older word for `backend`", ("body",), None, ["validate"]),
    ("Weir has the hour of a sum within a day of now, and adds the environment of the token", ("body",), None, ["backstage metricsbatch"]),
    ("Weir names the projects of the token in `query`", ("body",), None, ["backstage features"]),
    ("each program has counters of its own beside the shared names, and Weir's type names no charset", CONTENT, None, ["backstage metrics"]),
    ("each program describes itself", ("body",), None, ["backstage tokens", "backstage instancedata", "backstage info", "OpenAPI"]),
    ("a preflight without a body is a 204", ("status",), 204, ["preflight"]),
    ("Weir names the methods that the path has", ("allow", "status"), 405, ["another method"]),
]


def send(base, method, path, token, fields, body):
    """Status, fields and body of a response."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(base + path, data=data, method=method, headers=dict(fields))
    if token:
        request.add_header("Authorization", token)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            status, head, content = response.status, response.headers, b"" if method == "HEAD" else response.read()
    except urllib.error.HTTPError as error:
        status, head, content = error.code, error.headers, error.read()
    text = json.dumps(shown(content), sort_keys=True)
    if len(text) > KEPT_BYTES_MAX:
        text = f"{len(text)} bytes, sha256 {hashlib.sha256(text.encode()).hexdigest()}"
    return {"status": status, "body": text, **{name: head.get(name) for name in FIELDS}}


def responses(base):
    """The response to each request, by its name. Each program has tags of its own, so only their presence is kept."""
    with urllib.request.urlopen(urllib.request.Request(f"{base}/api/client/features", headers={"Authorization": BACKEND}), timeout=20) as response:
        flag = json.load(response)["features"][0]["name"]
    tags, kept = {}, {}
    for name, method, path, token, fields, body in requests(flag):
        response = send(base, method, path, token, {key: value.format_map(tags) for key, value in fields.items()}, body)
        tags[name] = response["etag"]
        kept[name] = {**response, "etag": response["etag"] is not None}
    return kept


def shown(body):
    """A document without what differs by the clock or by the program. Absent, null and empty mean the same to every SDK."""
    try:
        document = json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
    if isinstance(document, dict):
        document.pop("meta", None)
        for one in document.get("applications", []):
            one.pop("connectVia", None)
    return stripped(document)


def stripped(value):
    if isinstance(value, list):
        return [stripped(one) for one in value]
    if isinstance(value, dict):
        return {name: stripped(one) for name, one in value.items() if one not in (None, [], {})}
    return value


def main():
    if sys.argv[1] == "--record":
        edge, path = sys.argv[2:4]
        kept = responses(edge)
        with open(path, "w") as file:
            json.dump(kept, file, indent=1)
            file.write("\n")
        return
    weir, edge = sys.argv[1:3]
    ours = responses(weir)
    if edge.startswith("http"):
        theirs = responses(edge)
    else:
        with open(edge) as file:
            theirs = json.load(file)
    if list(ours) != list(theirs):
        sys.exit(f"the requests are others: {set(ours) ^ set(theirs)}")
    compare(ours, theirs)


def compare(ours, theirs):
    explained = {name: (reason, set(fields), status) for reason, fields, status, names in DIFFERENCES for name in names}
    equal, faults = 0, [f"{name}: no such request" for name in explained if name not in ours]
    for name, one in ours.items():
        other = theirs[name]
        found = {field for field in one if one[field] != other[field]}
        # SDKs need the tags of documents alone. Edge has some on refusals and for operators, Weir on 304s and documents of a POST.
        if one["etag"] or name.startswith(("backstage", "OpenAPI")) or other["status"] != 200 or one["status"] != 200:
            found.discard("etag")
        reason, fields, status = explained.get(name, (None, set(), None))
        status = status or other["status"]
        equal += not found
        if found != fields or one["status"] != status:
            faults.append(f"{name}: {sorted(found)} differ, {sorted(fields)} may; status {status} is due\n  Weir {one}\n  Edge {other}")
        elif reason:
            print(f"- {name} ({', '.join(sorted(found))}): {reason}")
    print(f"{equal} of {len(ours)} requests with equal responses, {len(ours) - equal} with differences")
    for fault in faults:
        print(f"FAULT {fault}")
    sys.exit(1 if faults else 0)


main()
