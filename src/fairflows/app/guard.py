"""Requests that the page refuses: of another host or origin, without the token, and those that are too large."""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairflows.app.private_folder import MOST_BYTES

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # the address holds the token
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Middleware that lets requests of the page itself pass, and no others."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self._refused(scope)
        answer: ASGIApp = self._app if refused is None else PlainTextResponse(refused[1], refused[0])
        await answer(scope, receive, send_with_headers)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._hosts:  # another name may have been made to lead here (DNS rebinding)
            return 421, "This page answers to 127.0.0.1 alone."
        if origin is not None and origin != f"http://{host}":
            return 403, "The request comes from another page."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "The request comes from another page."
        token = f"{scope['path']}/".split("/")[1]  # the path of a request may be "*"
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return 403, "The address lacks the token: open the one that `fairflows app` printed."
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or len(length) > 20 or int(length) > MOST_BYTES:
            return 413, f"The page takes files of at most {MOST_BYTES:,} bytes."
        return None
