#!/usr/bin/env bash
# The first minutes of a newcomer: does what the README says, from a fresh clone with a cargo home of its own, and prints how long each
# step took. Needs git, Rust, a C compiler, redis-server, redis-cli, python3, curl and bc, and some minutes of two CPUs. Run it by hand:
#
#   tests/first_minutes.sh [FOLDER]      # FOLDER keeps the output of each step; the default is a temporary folder
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$(mktemp -d)}
mkdir -p "$out"
work=$(mktemp -d)
processes=()
finish() {
    for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap finish EXIT

now() { date +%s.%N; }
step() { # name, command...: runs it, keeps its output, prints its time
    local name=$1 begun
    shift
    begun=$(now)
    "$@" >"$out/$name.txt" 2>&1 || { echo "$name: failed"; tail -20 "$out/$name.txt"; exit 1; }
    printf '%-34s %8.1f s\n' "$name" "$(echo "$(now) - $begun" | bc)"
}
until_true() { # command...: repeats it, half a minute at most
    for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    echo "never true: $*" >&2
    return 1
}
start() { # name, command...: leaves it running
    local name=$1
    shift
    "$@" >"$out/$name.txt" 2>&1 &
    processes+=($!)
}
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

export CARGO_HOME=$work/cargo CARGO_TARGET_DIR=$work/target
mkdir -p "$CARGO_HOME"
# The mirror of crates that this machine is set up for.
for file in config.toml config; do [ -e "$HOME/.cargo/$file" ] && cp "$HOME/.cargo/$file" "$CARGO_HOME/"; done
step clone git clone -q "$tree" "$work/weir"
cd "$work/weir"
step 'fetch crates' cargo fetch --locked
step 'cargo build --release -p weir' cargo build --release -p weir
step 'weir demo --once' cargo run --release -- demo --once
weir=$CARGO_TARGET_DIR/release/weir
grep -h 'errors, .* lost' "$out/weir demo --once.txt"

redis=$(port) web=$(port) front=$(port) edge=$(port) admin=$(port)
start redis-server redis-server --port "$redis" --bind 127.0.0.1 --save '' --dir "$work"
# A server with a page that takes 20 ms.
start server python3 -c '
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            time.sleep(0.02)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()' "$web"
until_true redis-cli -p "$redis" ping
until_true curl -fs "http://127.0.0.1:$web/"

in_front_of_redis() {
    start 'weir redis' "$weir" redis ":$front" "127.0.0.1:$redis" --admin "127.0.0.1:$admin"
    until_true redis-cli -p "$front" info server
}
in_front_of_http() {
    start 'weir http' "$weir" http ":$edge" "127.0.0.1:$web"
    until_true curl -fs "http://127.0.0.1:$edge/"
}
step 'weir redis: first reply' in_front_of_redis
cat "$out/weir redis.txt"
step 'weir http: first response' in_front_of_http
cat "$out/weir http.txt"
step 'weir top --once --columns 80' "$weir" top --once --columns 80 --admin "http://127.0.0.1:$admin"
step 'weir redis --write' "$weir" redis ":$(port)" "127.0.0.1:$redis" --write "$work/weir.toml"
step 'weir check' "$weir" check "$work/weir.toml"
step 'weir lab load, threshold held' "$weir" lab load "http://127.0.0.1:$edge/" --rate 200 --for 10s --threshold 'p99<1s'
missed=0
"$weir" lab load "http://127.0.0.1:$edge/slow" --rate 200 --for 10s --threshold 'p99<10ms' >"$out/missed.txt" 2>&1 || missed=$?
[ "$missed" = 99 ] || { echo "a missed threshold ended with $missed, not 99"; exit 1; }
echo 'outputs:' "$out"
