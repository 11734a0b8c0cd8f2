"""A gRPC service without a schema: its messages are bytes. Serves it, or calls it.

    serve CERTIFICATE KEY    prints the port
    call HOST                prints what came back, as JSON
"""

import json
import queue
import sys
from concurrent import futures

import grpc

SECONDS = 20


def one(message, context):
    """Says what came, and after it whether it came with the secret, and the secret."""
    authorization = dict(context.invocation_metadata()).get("authorization", "")
    is_known = "yes" if authorization == "Bearer tok_s3cret_value" else "no"
    context.set_trailing_metadata((("known", is_known), ("echo", authorization)))
    return message


def chat(messages, context):
    yield from messages


def fail(message, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "there is none")


class Echo(grpc.GenericRpcHandler):
    METHODS = {
        "One": grpc.unary_unary_rpc_method_handler(one),
        "Chat": grpc.stream_stream_rpc_method_handler(chat),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
    }

    def service(self, call):
        return self.METHODS.get(call.method.rpartition("/")[2])


def serve(certificate, key):
    pair = [open(file, "rb").read() for file in (key, certificate)]
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Echo(),))
    print(server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([tuple(pair)])), flush=True)
    server.start()
    server.wait_for_termination()


def talk(channel):
    """Says the next thing when the last one has come back. None ends like the beginning of a secret, which would be held back."""
    said, heard = queue.SimpleQueue(), []
    answers = channel.stream_stream("/echo.Echo/Chat")(iter(said.get, None), timeout=SECONDS)
    for number in range(3):
        said.put(b"%d!" % number)
        heard.append(next(answers).decode())
    said.put(None)
    return heard + [answer.decode() for answer in answers]


def error_of(channel, method):
    try:
        channel.unary_unary(method)(b"", timeout=SECONDS)
    except grpc.RpcError as error:
        return [error.code().name, error.details()]


def call(host):
    with grpc.secure_channel(host + ":443", grpc.ssl_channel_credentials()) as channel:
        answer, end = channel.unary_unary("/echo.Echo/One").with_call(bytes(100_000), timeout=SECONDS)
        result = {
            "one": len(answer),
            "last": dict(end.trailing_metadata()),
            "chat": talk(channel),
            "fail": error_of(channel, "/echo.Echo/Fail"),
            "refused": error_of(channel, "/echo.Other/One"),
        }
    print(json.dumps(result))


{"serve": serve, "call": call}[sys.argv[1]](*sys.argv[2:])
