"""A server for a team, behind an identity provider (OpenID Connect): it starts Hotcell, logs in as a person does, in a browser, and works
as that person.

    team_server.py ISSUER [HOTCELL COMMAND…]

The identity provider must let clients register themselves. In production the server runs as a service, behind TLS, and only the
second half of this is a client's."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import webbrowser
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse
from urllib.request import urlopen

from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientMetadata

CONFIGURATION = """
[quotas]
containers_max = 4                    # of each person
spawns_per_minute = 30
"""


class Login:
    """Keeps the tokens in memory, opens the browser, and waits for the page that it is sent back to."""

    tokens = client = None

    def __init__(self):
        self.answers = answers = []

        class Page(BaseHTTPRequestHandler):
            def do_GET(self):
                answers.append(parse_qs(urlparse(self.path).query))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"You are logged in. You can close this page.")

            def log_message(self, *_):
                pass

        self.page = HTTPServer(("127.0.0.1", 0), Page)
        self.address = f"http://127.0.0.1:{self.page.server_port}/callback"

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client

    async def open(self, url):
        webbrowser.open(url)

    async def code(self):
        await asyncio.to_thread(self.page.handle_request)
        answer = self.answers[-1]
        return AuthorizationCodeResult(code=answer["code"][0], state=answer["state"][0], iss=answer.get("iss", [None])[0])


async def work(url):
    login = Login()
    metadata = OAuthClientMetadata(
        client_name="team example",
        redirect_uris=[login.address],
        token_endpoint_auth_method="none",
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )
    auth = OAuthClientProvider(url, metadata, login, login.open, login.code)
    async with create_mcp_http_client(auth=auth) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            ran = await client.call_tool("execute_code", {"code": "print('a container of my own')"})
            print(ran.structured_content["stdout"].strip())
            tools = [tool.name for tool in (await client.list_tools()).tools]
            print("operator's tools:", "yes" if "system_status" in tools else "no")


async def answers(url, server):
    while server.poll() is None:
        try:
            return urlopen(f"{url}/readyz").status == 200
        except OSError:
            await asyncio.sleep(0.05)
    raise RuntimeError("the server ended")


async def main(issuer, *command):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as directory:
        configuration = Path(directory, "hotcell.toml")
        configuration.write_text(CONFIGURATION)
        arguments = ["--config", configuration, "--port", str(port), "--auth", "oidc", "--oidc-issuer", issuer]
        server = subprocess.Popen([*(command or ("hotcell", "serve")), *arguments], stderr=subprocess.DEVNULL, env=dict(os.environ))
        try:
            await answers(url, server)
            await work(f"{url}/mcp")
        finally:
            server.terminate()
            server.wait()


asyncio.run(main(*sys.argv[1:]))
