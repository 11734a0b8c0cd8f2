"""The public indexes of Python and npm, with one small package each, on a port of loopback.

Arguments: directory of cert.pem and key.pem, the host of Python's files, the host of npm.
Prints its port, then a line for each request.
"""

import base64
import hashlib
import http.server
import io
import json
import ssl
import sys
import tarfile
import zipfile

DIRECTORY, FILES, NPM = sys.argv[1:]


def wheel():
    info = "tinything-1.0.dist-info"
    files = {
        "tinything.py": "VALUE = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tinything\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digest = lambda text: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    record = "".join(f"{name},sha256={digest(text)},{len(text)}\n" for name, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def tarball():
    packed = io.BytesIO()
    files = {
        "package/package.json": json.dumps({"name": "tinything", "version": "1.0.0", "main": "index.js"}),
        "package/index.js": "module.exports = 42\n",
    }
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


WHEEL, TARBALL = wheel(), tarball()
FILE = "tinything-1.0-py3-none-any.whl"
LINK = f"https://{FILES}/packages/{FILE}#sha256={hashlib.sha256(WHEEL).hexdigest()}"
INTEGRITY = "sha512-" + base64.b64encode(hashlib.sha512(TARBALL).digest()).decode()
DIST = {"tarball": f"https://{NPM}/tinything/-/tinything-1.0.0.tgz", "integrity": INTEGRITY}
VERSION = {"name": "tinything", "version": "1.0.0", "dist": DIST}
DOCUMENT = {"name": "tinything", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": VERSION}}
ANSWERS = {
    "/simple/tinything/": ("text/html", f'<a href="{LINK}">{FILE}</a>'.encode()),
    f"/packages/{FILE}": ("application/octet-stream", WHEEL),
    "/tinything": ("application/json", json.dumps(DOCUMENT).encode()),
    "/tinything/-/tinything-1.0.0.tgz": ("application/octet-stream", TARBALL),
}


class Index(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        print(self.headers["Host"], self.path, flush=True)
        kind, body = ANSWERS.get(self.path, (None, b""))
        self.send_response(200 if kind else 404)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{DIRECTORY}/cert.pem", f"{DIRECTORY}/key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_address[1], flush=True)
server.serve_forever()
