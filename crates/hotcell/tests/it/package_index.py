"""The public indexes of packages, with one small package each, and a repository of git, on loopback.

Arguments: directory of cert.pem and key.pem, then the hosts of Python's files, of npm and of cargo's files.
Prints its ports with TLS and without, then a line for each request. Leaves `go.sum`, as a project with Go's package has it.
"""

import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import threading
import zipfile

DIRECTORY, FILES, NPM, CRATES = sys.argv[1:]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def tar_gz(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def zipped(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def python():
    info = "tinything-1.0.dist-info"
    files = {
        "tinything.py": "VALUE = 42\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tinything\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digest = lambda text: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    record = "".join(f"{name},sha256={digest(text)},{len(text)}\n" for name, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    wheel, name = zipped(files), "tinything-1.0-py3-none-any.whl"
    link = f"https://{FILES}/packages/{name}#sha256={sha256(wheel)}"
    return {
        "/simple/tinything/": ("text/html", f'<a href="{link}">{name}</a>'.encode()),
        f"/packages/{name}": ("application/octet-stream", wheel),
    }


def npm():
    tarball = tar_gz({
        "package/package.json": json.dumps({"name": "tinything", "version": "1.0.0", "main": "index.js"}),
        "package/index.js": "module.exports = 42\n",
    })
    path = "/tinything/-/tinything-1.0.0.tgz"
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    version = {"name": "tinything", "version": "1.0.0", "dist": {"tarball": f"https://{NPM}{path}", "integrity": integrity}}
    document = {"name": "tinything", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    return {
        "/tinything": ("application/json", json.dumps(document).encode()),
        path: ("application/octet-stream", tarball),
    }


def cargo():
    manifest = '[package]\nname = "tinything"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = tar_gz({
        "tinything-1.0.0/Cargo.toml": manifest,
        "tinything-1.0.0/src/lib.rs": "pub const VALUE: u8 = 42;\n",
    })
    entry = {"name": "tinything", "vers": "1.0.0", "deps": [], "cksum": sha256(crate), "features": {}, "yanked": False}
    return {
        "/config.json": ("application/json", json.dumps({"dl": f"https://{CRATES}/crates"}).encode()),
        "/ti/ny/tinything": ("text/plain", json.dumps(entry).encode() + b"\n"),
        "/crates/tinything/1.0.0/download": ("application/octet-stream", crate),
    }


def go():
    module, version = "example.org/tinything", "v1.0.0"
    files = {"go.mod": f"module {module}\n", "tinything.go": "package tinything\n\nconst Value = 42\n"}
    full = {f"{module}@{version}/{name}": text for name, text in files.items()}
    info = json.dumps({"Version": version, "Time": "2026-01-01T00:00:00Z"})
    # What a project's go.sum says of it: digests of lists of digests.
    total = lambda texts: "h1:" + base64.b64encode(hashlib.sha256("".join(
        f"{sha256(text.encode())}  {name}\n" for name, text in sorted(texts.items())).encode()).digest()).decode()
    sums = f"{module} {version} {total(full)}\n{module} {version}/go.mod {total({'go.mod': files['go.mod']})}\n"
    with open(f"{DIRECTORY}/go.sum", "w") as file:
        file.write(sums)
    base = f"/{module}/@v"
    return {
        f"{base}/list": ("text/plain", f"{version}\n".encode()),
        f"{base}/{version}.info": ("application/json", info.encode()),
        f"{base}/{version}.mod": ("text/plain", files["go.mod"].encode()),
        f"{base}/{version}.zip": ("application/zip", zipped(full)),
    }


def debian():
    """The same packages in each release. They are signed by nobody."""
    if not shutil.which("dpkg-deb"):
        return {}
    root = f"{DIRECTORY}/tinything"
    os.makedirs(f"{root}/DEBIAN", exist_ok=True)
    os.makedirs(f"{root}/usr/share/tinything", exist_ok=True)
    fields = "Package: tinything\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: tiny\n"
    with open(f"{root}/DEBIAN/control", "w") as file:
        file.write(fields)
    with open(f"{root}/usr/share/tinything/value", "w") as file:
        file.write("42\n")
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", root, f"{root}.deb"], check=True, stdout=sys.stderr)
    with open(f"{root}.deb", "rb") as file:
        deb = file.read()
    path = "pool/main/t/tinything/tinything_1.0_all.deb"
    packages = f"{fields}Filename: {path}\nSize: {len(deb)}\nSHA256: {sha256(deb)}\n\n".encode()
    answers = {f"/debian/{path}": ("application/octet-stream", deb)}
    lists = ""
    for architecture in ("all", subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()):
        for suffix, data in (("", packages), (".gz", gzip.compress(packages, mtime=0))):
            directory = f"main/binary-{architecture}"
            lists += f" {sha256(data)} {len(data)} {directory}/Packages{suffix}\n"
            answers[f"/debian/dists/tiny/{directory}/by-hash/SHA256/{sha256(data)}"] = ("application/octet-stream", data)
    release = (
        "Origin: tiny\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nAcquire-By-Hash: yes\n"
        f"Architectures: all amd64 arm64\nComponents: main\nSHA256:\n{lists}"
    )
    answers["/debian/dists/tiny/Release"] = ("text/plain", release.encode())
    return answers


def repository():
    """A repository that may be read and written by whoever reaches it."""
    if not shutil.which("git"):
        return
    work, bare = f"{DIRECTORY}/work", f"{DIRECTORY}/git/tiny.git"
    identity = ["-c", "user.name=tiny", "-c", "user.email=tiny@example.com"]
    git = lambda *words: subprocess.run(["git", *identity, *words], check=True, stdout=sys.stderr)
    git("init", "-q", "-b", "main", work)
    with open(f"{work}/value", "w") as file:
        file.write("42\n")
    git("-C", work, "add", "value")
    git("-C", work, "commit", "-q", "-m", "tiny")
    git("clone", "-q", "--bare", work, bare)
    git("-C", bare, "config", "http.receivepack", "true")


ANSWERS = {**python(), **npm(), **cargo(), **go(), **debian()}
repository()


def found(path):
    """What is at a path. Every release of Debian is the same one."""
    path = re.sub("^/debian(-security)?/", "/debian/", path)
    return ANSWERS.get(re.sub("^/debian/dists/[^/]+/", "/debian/dists/tiny/", path), (None, b""))


class Index(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        print(self.command, self.headers["Host"], self.path, flush=True)
        if self.path.startswith("/tiny.git/"):
            return self.git(b"")
        self.answer(*found(self.path))

    do_HEAD = do_GET

    def do_POST(self):
        print(self.command, self.headers["Host"], self.path, flush=True)
        self.git(self.body())

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def answer(self, kind, body, status=200):
        self.send_response(status if kind else 404)
        if kind:
            self.send_header("Content-Type", kind)
        if self.path.endswith(".deb"):
            self.send_header("Cache-Control", "max-age=86400")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def git(self, body):
        path, _, query = self.path.partition("?")
        variables = {
            "GIT_PROJECT_ROOT": f"{DIRECTORY}/git", "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
            "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_USER": "tiny",
            "CONTENT_LENGTH": str(len(body)), "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        ran = subprocess.run(["git", "http-backend"], input=body, stdout=subprocess.PIPE, env={**os.environ, **variables})
        head, _, rest = ran.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.answer(headers["Content-Type"], rest, int(headers.get("Status", "200").split()[0]))

    def log_message(self, *arguments):
        pass


def serve(context=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever).start()
    return server.server_address[1]


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(f"{DIRECTORY}/cert.pem", f"{DIRECTORY}/key.pem")
print(serve(context), serve(), flush=True)
