"""A gRPC peer made with grpcio, without generated code.

`server` echoes on a free port, which it prints, and has the standard health service. `client ADDRESS` calls an echo in all four
ways, `serving ADDRESS SERVICE yes|no` says what the health service responds, `who ADDRESS EXPECTED` asks ten times which server
responds, and `status ADDRESS CODE` expects a call to end so. They print `ok`, or fail loudly."""

import concurrent.futures
import sys
import threading
import time

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


def server():
    own = {}

    def control(request, _):
        service, serving = request.decode().split()
        status = health_pb2.HealthCheckResponse
        checks.set(service, status.SERVING if serving == "yes" else status.NOT_SERVING)
        return b"done"

    def unary(request, context):
        context.set_trailing_metadata([pair for pair in context.invocation_metadata() if pair[0].startswith("x-note")])
        return request

    def slow(request, context):
        yield request
        time.sleep(30)

    def fail(_, context):
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "wörds & 100 %")

    def both(requests, _):
        yield from requests

    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Collect": grpc.stream_unary_rpc_method_handler(lambda requests, _: b"".join(requests)),
        "Repeat": grpc.unary_stream_rpc_method_handler(lambda request, _: (request for _ in range(100))),
        "Both": grpc.stream_stream_rpc_method_handler(both),
        "Slow": grpc.unary_stream_rpc_method_handler(slow),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Control": grpc.unary_unary_rpc_method_handler(control),
        "Who": grpc.unary_unary_rpc_method_handler(lambda *_: own["address"]),
    }
    running = grpc.server(concurrent.futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    running.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("echo.Echo", handlers)])
    checks = health.HealthServicer()
    checks.set("shop", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, running)
    port = running.add_insecure_port("127.0.0.1:0")
    own["address"] = f"127.0.0.1:{port}".encode()
    running.start()
    print(port, flush=True)
    running.wait_for_termination()


def client(channel):
    unary = channel.unary_unary("/echo.Echo/Unary")
    large = bytes(at * 7919 >> 8 & 255 for at in range(3_000_000))
    for message in [b"", b"hello", large]:
        assert unary(message, timeout=20) == message
    response, call = unary.with_call(b"a", metadata=(("x-note-bin", b"\0\1\xff"),), timeout=20)
    assert response == b"a" and dict(call.trailing_metadata())["x-note-bin"] == b"\0\1\xff"
    assert channel.stream_unary("/echo.Echo/Collect")(iter([b"a", b"", b"b" * 200_000]), timeout=20) == b"a" + b"b" * 200_000
    assert list(channel.unary_stream("/echo.Echo/Repeat")(b"x" * 10_000, timeout=20)) == [b"x" * 10_000] * 100
    # Turn by turn: each part gets a response before more is sent.
    turn = threading.Semaphore(0)

    def questions():
        for number in range(50):
            yield str(number).encode()
            turn.acquire()

    for number, response in enumerate(channel.stream_stream("/echo.Echo/Both")(questions(), timeout=20)):
        assert response == str(number).encode()
        turn.release()
    expect(lambda: channel.unary_unary("/echo.Echo/Fail")(b"", timeout=20), grpc.StatusCode.FAILED_PRECONDITION, "wörds & 100 %")
    expect(lambda: channel.unary_unary("/echo.Echo/None")(b"", timeout=20), grpc.StatusCode.UNIMPLEMENTED)
    begun = time.monotonic()
    expect(lambda: list(channel.unary_stream("/echo.Echo/Slow")(b"", timeout=0.5)), grpc.StatusCode.DEADLINE_EXCEEDED)
    assert 0.4 < time.monotonic() - begun < 10
    stream = channel.unary_stream("/echo.Echo/Slow")(b"first")
    assert next(stream) == b"first"
    stream.cancel()
    check = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="shop"), timeout=20)
    assert check.status == health_pb2.HealthCheckResponse.SERVING


def expect(call, code, details=None):
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, error
        assert details is None or error.details() == details, error.details()
    else:
        raise AssertionError(f"no {code}")


def who(channel, expected):
    responses = {channel.unary_unary("/echo.Echo/Who")(b"", timeout=20).decode() for _ in range(10)}
    assert responses == {expected}, responses


def status(channel, code):
    try:
        channel.unary_unary("/echo.Echo/Unary")(b"", timeout=20)
    except grpc.RpcError as error:
        assert error.code().value[0] == int(code), error
    else:
        raise AssertionError("no error")


def main():
    if sys.argv[1] == "server":
        return server()
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(sys.argv[2], options=unlimited) as channel:
        match sys.argv[1], sys.argv[3:]:
            case "client", []:
                client(channel)
            case "serving", [service, serving]:
                assert channel.unary_unary("/echo.Echo/Control")(f"{service} {serving}".encode(), timeout=20) == b"done"
            case "who", [expected]:
                who(channel, expected)
            case "status", [code]:
                status(channel, code)
            case _:
                raise SystemExit(__doc__)
    print("ok")


main()
