"""An MCP server over HTTP that misbehaves as its arguments say. Prints its port.

sessions    forget every session after two requests
redirect=U  redirect everything to U
huge        answer calls with an endless event
secret      answer calls with the headers that arrived
status=N    answer everything with N
cut         end the stream before the answer, which is there for whoever resumes
"""
import http.server
import itertools
import json
import sys

FAULTS = dict(fault.partition("=")[::2] for fault in sys.argv[1:])
SESSIONS = {}
NUMBERS = itertools.count()
PENDING = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", kind="application/json", **headers):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        resumed = PENDING.pop(self.headers.get("last-event-id"), None)
        if resumed is None:
            self.reply(405)
        else:
            self.reply(200, b"id: e2\ndata: " + resumed + b"\n\n", "text/event-stream")

    def do_DELETE(self):
        SESSIONS.pop(self.headers.get("mcp-session-id"), None)
        self.reply(200)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if "redirect" in FAULTS:
            self.reply(307, location=FAULTS["redirect"])
            return
        if "status" in FAULTS:
            self.reply(int(FAULTS["status"]))
            return
        message = json.loads(body)
        method, session = message["method"], self.headers.get("mcp-session-id")
        if method == "server/discover":
            self.reply(400)
            return
        if method == "initialize":
            session = f"s{next(NUMBERS)}"
            SESSIONS[session] = 0
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "f", "version": "1"}}
            self.answer(message, result, mcp_session_id=session)
            return
        if session not in SESSIONS:
            self.reply(404)
            return
        if "id" not in message:
            self.reply(202)
            return
        if method == "tools/list":
            self.answer(message, {"tools": [{"name": "t"}]})
            return
        SESSIONS[session] += 1
        if "sessions" in FAULTS and SESSIONS[session] >= 2:
            del SESSIONS[session]
            self.reply(404)
            return
        if "huge" in FAULTS:
            self.huge()
            return
        if "cut" in FAULTS:
            result = {"content": [{"type": "text", "text": "resumed"}]}
            PENDING["e1"] = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
            self.reply(200, b"id: e1\nretry: 10\ndata: \n\n", "text/event-stream")
            return
        structured = dict(self.headers) if "secret" in FAULTS else {"session": session}
        self.answer(message, {"content": [], "structuredContent": structured})

    def answer(self, message, result, **headers):
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self.reply(200, body, **headers)

    def huge(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        self.wfile.write(b"data: ")
        try:
            for _ in range(100):
                self.wfile.write(b"x" * (1 << 20))
        except OSError:
            pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
