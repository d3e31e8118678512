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

`flags.toml` is the smallest file of docs/guide/flags.md with `backstage = ["health", "ready", "metricsbatch"]`, for Edge has all endpoints
of operators by default.

Each request is sent to both, with status, the header fields that matter to SDKs, and the body compared as JSON. A difference that DIFFERENCES
explains is listed with its reason; any other one is a fault, and the exit status is 1.
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
CONTEXTS = ["", "?userId=7", "?userId=7&sessionId=s&appName=a&properties[plan]=pro", "?userId=7&properties%5Bplan%5D=free", "?environment=other"]


# A body of more bytes is kept as its hash.
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
    for path in ["/api/frontend", "/api/proxy", "/api/frontend/all", "/api/proxy/all"]:
        for context in CONTEXTS:
            yield f"{path}{context}", "GET", f"{path}{context}", FRONTEND, {}, None
        yield f"{path}, POST", "POST", path, FRONTEND, JSON, {"userId": "7", "properties": {"plan": "pro"}}
        yield f"{path}, POST with a wrapper", "POST", path, FRONTEND, JSON, {"context": {"userId": "7"}}
        yield f"{path}, POST of no JSON", "POST", path, FRONTEND, JSON, "{"
    yield "unknown names in a query", "GET", "/api/frontend?plan=pro", FRONTEND, {}, None
    for word, name in [("that is there", flag), ("that is not there", "zzz")]:
        yield f"frontend feature {word}", "GET", f"/api/frontend/features/{name}?userId=7", FRONTEND, {}, None
        yield f"frontend feature {word}, POST", "POST", f"/api/frontend/features/{name}", FRONTEND, JSON, {"userId": "7"}
    for path, token in [("/api/client", BACKEND), ("/api/frontend/client", FRONTEND), ("/api/proxy/client", FRONTEND)]:
        yield f"{path}/metrics", "POST", f"{path}/metrics", token, JSON, METRICS
        yield f"{path}/metrics of no JSON", "POST", f"{path}/metrics", token, JSON, "{"
        yield f"{path}/register", "POST", f"{path}/register", token, JSON, APPLICATION
    yield "bulk metrics", "POST", "/api/client/metrics/bulk", BACKEND, JSON, {"applications": [APPLICATION], "metrics": []}
    yield "validate", "POST", "/edge/validate", "", JSON, {"tokens": [BACKEND, "*:development.unknown-token"]}
    for word in ["health", "ready", "metricsbatch"]:
        yield f"backstage {word}", "GET", f"/internal-backstage/{word}", "", {}, None
    yield "preflight", "OPTIONS", front, "", {"Origin": "https://a.example", "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}, None
    yield "cross-origin", "GET", front, FRONTEND, {"Origin": "https://a.example"}, None
    yield "no such path", "GET", "/api/nothing", BACKEND, {}, None
    yield "another method", "DELETE", client, BACKEND, {}, None


NO_BODY = "Weir's 403 and 404 have no body: they must not say which part of a token is wrong"
WORDS = "a refusal has other words, and Weir's are JSON everywhere"

# The beginning of a request's name, what differs (nothing: anything), and why.
DIFFERENCES = [
    ("", "etag", "both are tags of the same bytes, by another hash, and Edge's is weak"),
    ("features, POST", "", "Edge 20 has it, 19.15.1 has not"),
    ("feature by the beginning of a name", "", "Edge 19.15.1 returns the first flag whose name begins so; Edge 20 and Weir are exact"),
    ("delta", "", "Edge has deltas only where its upstream streams them; Weir makes them itself"),
    ("streaming", "", "Edge has streams only where its upstream has; Weir makes them itself"),
    ("features, an unknown token", "", "Edge 19.15.1 says 401 or 403 before its upstream has decided"),
    ("frontend, a token of another environment", "status", "Edge says 511 where it has no flags; Weir says 403, for no token of its start covers the token"),
    ("features, ", "body", NO_BODY),
    ("features, ", "content-type", NO_BODY),
    ("frontend, ", "body", NO_BODY),
    ("frontend, ", "content-type", NO_BODY),
    ("feature that is not there", "", NO_BODY),
    ("frontend feature that is not there", "", NO_BODY),
    ("unknown names in a query", "body", "unknown names become properties, as in unleash-server; Edge drops them"),
    ("validate", "body", "`client` is the older word for `backend`"),
    ("preflight", "status", "a preflight without a body is a 204"),
    ("another method", "", "Weir names the methods that the path has"),
    ("backstage metricsbatch", "body", "Weir has the hour of a sum within a day of now, and adds the environment of the token"),
]
for path in ["/api/frontend", "/api/proxy", "/api/frontend/all", "/api/proxy/all"]:
    DIFFERENCES += [
        (f"{path}, POST with a wrapper", "body", "Edge evaluates an empty context for `{\"context\": ...}`, as unleash-server and SDKs send it"),
        (f"{path}, POST of no JSON", "", WORDS),
    ]
for path in ["/api/client", "/api/frontend/client", "/api/proxy/client"]:
    DIFFERENCES.append((f"{path}/metrics of no JSON", "", WORDS))


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
    """The response to each request, by its name."""
    with urllib.request.urlopen(urllib.request.Request(f"{base}/api/client/features", headers={"Authorization": BACKEND}), timeout=20) as response:
        flag = json.load(response)["features"][0]["name"]
    return {name: send(base, *request) for name, *request in requests(flag)}


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
        with open(path, "w") as file:
            json.dump(responses(edge), file, indent=1)
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
    same, explained, faults = 0, {}, []
    for name, one in ours.items():
        other = theirs[name]
        found = [field for field in one if one[field] != other[field]]
        for field in found:
            case = f"{name} ({field}: {str(one[field])[:200]} / {str(other[field])[:200]})"
            reason = next((why for begins, which, why in DIFFERENCES if name.startswith(begins) and which in ("", field)), None)
            if reason is None:
                faults.append(case)
            else:
                explained.setdefault(reason, []).append(case)
        same += not [field for field in found if field != "etag"]
    print(f"{same} of {len(ours)} requests with equal responses besides the tag")
    for reason, cases in explained.items():
        print(f"- {reason}: {len(cases)}, such as {cases[0]}")
    for fault in faults:
        print(f"FAULT {fault}")
    sys.exit(1 if faults else 0)


main()
