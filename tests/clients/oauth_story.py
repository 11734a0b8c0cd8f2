"""Logs in with the OAuth flow of the PyPI package `mcp`, as a person with a browser would, and works.

    oauth_story.py URL CLIENT_NAME

It registers itself with the identity provider that the server names, gets a token by authorization code with
PKCE, and follows redirects in place of a browser. It prints the names of the tools that it may use.
"""

import asyncio
import json
import sys
from urllib.parse import parse_qs, urlparse

import httpx2
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientMetadata

CALLBACK = "http://127.0.0.1:1/callback"

# More redirects than a login takes.
REDIRECTS_MAX = 12


class Memory:
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Browser:
    """Follows redirects until one leads back to us."""

    answer = None

    async def open(self, url):
        async with httpx2.AsyncClient() as browser:
            for _ in range(REDIRECTS_MAX):
                response = await browser.get(url)
                assert response.is_redirect, (url, response.status_code, response.text)
                url = str(response.next_request.url)
                if url.startswith(CALLBACK):
                    self.answer = parse_qs(urlparse(url).query)
                    return
        raise AssertionError("too many redirects")

    async def code(self):
        assert "code" in self.answer, self.answer
        fields = {"code": self.answer["code"][0], "state": self.answer["state"][0]}
        return AuthorizationCodeResult(**fields, iss=self.answer.get("iss", [None])[0])


async def main(url, name):
    browser = Browser()
    metadata = OAuthClientMetadata(
        client_name=name,
        redirect_uris=[CALLBACK],
        token_endpoint_auth_method="none",
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )
    auth = OAuthClientProvider(url, metadata, Memory(), browser.open, browser.code)
    async with create_mcp_http_client(auth=auth) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            made = await client.call_tool("spawn", {"alias": "logged-in"})
            assert not made.is_error, made
            ran = await client.call_tool("exec_start", {"container_id": "logged-in", "cmd": ["echo", "hi"], "wait_s": 30})
            assert ran.structured_content["messages"][0]["data"] == "hi\n", ran
            await client.call_tool("kill", {"container_id": "logged-in"})
    print(json.dumps(tools))


asyncio.run(main(*sys.argv[1:]))
