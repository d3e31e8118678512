#!/usr/bin/env python3
"""Counts what clients notice while the servers behind a gateway restart one after the other.

    python3 tests/restarts.py --weir target/dist/weir --arm weir --arm haproxy --arm envoy --endpoints 2 3 5

Starts N synthetic origins (`weir lab origin http`) and the gateway, and asks with GET: half of the clients keep their
connection, half make one for each request. Then each origin is killed, is away for `--down` seconds, comes back, and the
next one follows `--apart` seconds later. Every response but 200, and every connection that ends without a response, is an error.
"""

import argparse
import asyncio
import atexit
import collections
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

REQUEST = b"GET /12 HTTP/1.1\r\nHost: restarts.example\r\n\r\n"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def weir(arguments, folder, port, origins, checks, version):
    text = f"""
[admin]
bind = "127.0.0.1:{free_port()}"
[runtime]
workers = {arguments.workers}
[[listener]]
name = "web"
protocol = "http"
bind = "127.0.0.1:{port}"
upstream = "app"
[[upstream]]
name = "app"
endpoints = [{", ".join(f'"127.0.0.1:{origin}"' for origin in origins)}]
[upstream.health]
enabled = {str(checks).lower()}
[upstream.http]
version = "{version}"
"""
    config = folder / "weir.toml"
    config.write_text(text)
    return [arguments.weir, "run", "--config", str(config)]


def haproxy(arguments, folder, port, origins, checks, version):
    servers = "\n".join(
        f"  server s{number} 127.0.0.1:{origin}{' check' if checks else ''}{' proto h2' if version == '2' else ''}"
        for number, origin in enumerate(origins)
    )
    text = f"""
global
  nbthread {arguments.workers}
defaults
  mode http
  timeout connect 1s
  timeout client 30s
  timeout server 30s
  retries 3
  option redispatch 1
frontend web
  bind 127.0.0.1:{port}
  default_backend app
backend app
  balance roundrobin
{servers}
"""
    config = folder / "haproxy.cfg"
    config.write_text(text)
    return ["haproxy", "-db", "-f", str(config)]


def envoy(arguments, folder, port, origins, checks, version, retries_max=3):
    check = "[{ timeout: 0.5s, interval: 1s, unhealthy_threshold: 3, healthy_threshold: 2, tcp_health_check: {} }]"
    endpoints = "\n".join(
        f"      - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {origin} }} }} }}"
        for origin in origins
    )
    protocol = "http2_protocol_options: {}" if version == "2" else "http_protocol_options: {}"
    text = f"""
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ prefix: "/" }}
                route:
                  cluster: app
                  retry_policy:
                    retry_on: connect-failure,refused-stream
                    num_retries: 2
                    retry_host_predicate:
                    - name: envoy.retry_host_predicates.previous_hosts
                      typed_config:
                        "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate
                    host_selection_retry_max_attempts: 5
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: app
    type: STATIC
    connect_timeout: 1s
    circuit_breakers: {{ thresholds: [{{ max_retries: {retries_max} }}] }}
    health_checks: {check if checks else "[]"}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ {protocol} }}
    load_assignment:
      cluster_name: app
      endpoints:
      - lb_endpoints:
{endpoints.replace("      - ", "        - ")}
"""
    config = folder / "envoy.yaml"
    config.write_text(text)
    workers = ["--concurrency", str(arguments.workers)]
    return [arguments.envoy, "-c", str(config), *workers, "--disable-hot-restart", "--log-level", "error"]


def envoy_many_retries(*arguments):
    return envoy(*arguments, retries_max=1_024)


ARMS = {"weir": weir, "haproxy": haproxy, "envoy": envoy, "envoy-many-retries": envoy_many_retries}


def lab_origin(arguments, folder, port):
    return [arguments.weir, "lab", "origin", "http", "--bind", f"127.0.0.1:{port}"]


def nginx(arguments, folder, port):
    config = folder / f"nginx-{port}.conf"
    config.write_text(
        f"daemon off; master_process off; pid {folder}/pid-{port}; error_log stderr crit; events {{}}\n"
        f"http {{ access_log off; keepalive_requests 1000000;\n"
        f'server {{ listen 127.0.0.1:{port}; location / {{ return 200 "hello"; }} }} }}\n'
    )
    return ["nginx", "-c", str(config), "-p", str(folder)]


ORIGINS = {"lab": lab_origin, "nginx": nginx}


class Client:
    """One closed loop at a modest pace."""

    def __init__(self, port, keeps, results, arguments):
        self.port, self.keeps, self.results = port, keeps, results
        self.pace, self.says_why = arguments.pace, arguments.verbose
        self.streams = None

    async def ask(self):
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
        if b"chunked" in fields.get(b"transfer-encoding", b""):
            body = await reader.readuntil(b"0\r\n\r\n")
        else:
            body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
        status = head.split(b" ")[1].decode()
        if self.says_why and status != "200":
            print(status, body[:200], flush=True)
        return status, b"close" in fields.get(b"connection", b"")

    async def run(self, ends):
        while time.monotonic() < ends:
            begun = time.monotonic()
            try:
                result, closes = await asyncio.wait_for(self.ask(), 20)
            except (OSError, EOFError, TimeoutError, asyncio.TimeoutError) as error:
                result, closes = type(error).__name__, True
            self.results[result] += 1
            if closes or not self.keeps:
                if self.streams is not None:
                    self.streams[1].close()
                self.streams = None
            await asyncio.sleep(max(0.0, self.pace - (time.monotonic() - begun)))


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


RUNNING = []


@atexit.register
def end_all():
    for process in RUNNING:
        if process.poll() is None:
            process.kill()
            process.wait()


def start(words, port, log):
    process = subprocess.Popen(words, stdout=log, stderr=log)
    RUNNING.append(process)
    for _ in range(2_000):
        if listens(port):
            return process
        if process.poll() is not None:
            break
        time.sleep(0.01)
    raise SystemExit(f"{words[0]} does not listen: see {log.name}")


async def measure(arguments, arm, count, checks, version):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="restarts-"))
    log = (folder / "log").open("w")
    ports = [free_port() for _ in range(count)]
    origin = lambda port: start(ORIGINS[arguments.origin](arguments, folder, port), port, log)
    origins = [origin(port) for port in ports]
    port = free_port()
    gateway = start(ARMS[arm](arguments, folder, port, ports, checks, version), port, log)
    await asyncio.sleep(3)
    results = collections.Counter()
    length = arguments.apart + count * (arguments.down + arguments.apart)
    ends = time.monotonic() + length
    loops = [
        asyncio.create_task(Client(port, number % 2 == 0, results, arguments).run(ends))
        for number in range(arguments.clients)
    ]
    for number in range(count):
        await asyncio.sleep(arguments.apart)
        origins[number].send_signal(signal.SIGKILL)
        origins[number].wait()
        await asyncio.sleep(arguments.down)
        origins[number] = origin(ports[number])
    await asyncio.gather(*loops)
    end_all()
    RUNNING.clear()
    errors = {result: number for result, number in results.items() if result != "200"}
    words = ", ".join(f"{number} x {result}" for result, number in sorted(errors.items())) or "-"
    total = sum(results.values())
    print(
        f"| {arm} | {version} | {count} | {'yes' if checks else 'no'} | {sum(errors.values())} | {words} "
        f"| {total} | {length:.0f} s |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="target/debug/weir")
    parser.add_argument("--envoy", default="envoy")
    parser.add_argument("--arm", action="append", choices=list(ARMS))
    parser.add_argument("--endpoints", type=int, nargs="+", default=[2, 3, 5])
    parser.add_argument("--version", nargs="+", default=["1.1"], help="of HTTP, towards the origins")
    parser.add_argument("--checks", nargs="+", default=["yes", "no"], choices=["yes", "no"])
    parser.add_argument("--origin", default="lab", choices=list(ORIGINS), help="nginx speaks HTTP/1.1 only")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between two requests of a client")
    parser.add_argument("--down", type=float, default=2)
    parser.add_argument("--apart", type=float, default=2)
    parser.add_argument("--verbose", action="store_true", help="print what responses other than 200 say")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    print("| gateway | origins speak HTTP | endpoints | active checks | errors | which | requests | load |")
    print("|---|---|---|---|---|---|---|---|")
    for version in arguments.version:
        for arm in arguments.arm or list(ARMS):
            for checks in arguments.checks:
                for count in arguments.endpoints:
                    asyncio.run(measure(arguments, arm, count, checks == "yes", version))


if __name__ == "__main__":
    main()
