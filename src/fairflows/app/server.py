"""The server behind the page: its screens, one after the other, for any number of tables at once."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shutil
import socket
import threading
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from fairflows.app import findings, outlook
from fairflows.app.guard import HEADERS, Guard
from fairflows.app.private_folder import private_folder, receive
from fairflows.app.work import ROLES, Work, adult
from fairflows.certificate.about import About
from fairflows.certificate.check import check
from fairflows.certificate.releases import recorded_releases
from fairflows.exceptions import DataError
from fairflows.report import verdict
from fairflows.result import MODEL, open_watch, read_run, watch_persons
from fairflows.storage import load
from fairflows.table.reading import TextFormat, sheets_of
from fairflows.watching.watch import Watch
from fairflows.watching.watch_words import curve, lines

_MOST_FORM_BYTES = 2**22
_LONGEST_UPLOAD = 600  # seconds
_SAMPLE_LINES = 3
_PARAMETERS = re.compile(r"\s*\((?:separator|encoding|decimal|sheet)=[^()]*\)")
_HANG_UP = {"connection": "close"}  # else the server would go on reading what it has refused
_SCREENS = ("table", "columns", "target", "sharing", "result")


class Desk:
    """The tables that this process works on, by their numbers in the address, and the certificates it checks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.works: dict[str, Work] = {}
        self.checks: dict[str, dict[str, tuple[str, Path]]] = {}  # the certificate and the table: name and place
        self._watching = threading.Lock()

    def add(self, work: Work) -> Work:
        """Take another table."""
        self.works[work.id] = work
        return work

    def results(self) -> dict[str, Path]:
        """Return the folders of recorded releases, latest first, by names of our own for the address."""
        folders = dict.fromkeys(Path(release["file"]).parent for release in recorded_releases())
        return {sha256(bytes(folder)).hexdigest()[:16]: folder for folder in folders if (folder / MODEL).is_dir()}

    def watched(self, name: str, later: Path | None = None, day: str | None = None) -> tuple[Path, Watch]:
        """Return a folder with its watch, after the persons of a later file were counted, if there is one."""
        folder = self.results().get(name)
        if folder is None:
            raise HTTPException(404, "There is no such release on this machine.")
        model = load(folder / MODEL)
        if later is None:
            return folder, open_watch(folder, model)
        with self._watching:
            return folder, watch_persons(folder, model, read_run(folder).later_persons(later, model), day)


def make_app(desk: Desk, token: str, port: int) -> Starlette:
    """Return the page as an ASGI application."""

    def work_of(request: Request) -> Work:
        work = desk.works.get(request.path_params["work"])
        if work is None:
            raise HTTPException(404, "There is no such table here; its page may be of an earlier start.")
        return work

    def show(request: Request, name: str, work: Work | None = None, status: int = 200, **values: Any) -> Response:
        values = {"root": f"/{token}", "screen": name, "work": work, "screens": _SCREENS, "error": "", **values}
        return HTMLResponse(_environment().get_template(f"{name}.html.jinja").render(values), status)

    def to(work: Work, screen: str) -> Response:
        return RedirectResponse(f"/{token}/{work.id}/{screen}", 303)

    def screen(name: str, contents: Callable[[Work, Request], dict[str, Any]]) -> Route:
        """Make the route of a screen; where the table has an error, a page says so."""

        def endpoint(request: Request) -> Response:
            work = work_of(request)
            try:
                return show(request, name, work, **contents(work, request))
            except DataError as error:
                back = "table" if name == "columns" else "columns"  # never to the screen that stopped
                return show(request, "stopped", work, 400, error=str(error), back=back)

        return Route(f"/{{work}}/{name}", endpoint)

    def posted(name: str, change: Callable[[Work, Mapping[str, str]], str]) -> Route:
        """Make the route that takes a form; `change` returns the next screen."""

        async def endpoint(request: Request) -> Response:
            work, form = work_of(request), await _form(request)
            try:
                return to(work, await run_in_threadpool(change, work, form))
            except DataError as error:
                return show(request, "stopped", work, 400, error=str(error), back="columns")

        return Route(f"/{{work}}/{name}", endpoint, methods=["POST"])

    async def upload(request: Request) -> Response:
        """Take a file as the body of a request; its name comes in a header."""
        name = unquote(request.headers.get("x-name", ""))[:200]
        try:
            async with asyncio.timeout(_LONGEST_UPLOAD):
                path = await receive(request.stream(), name, desk.folder)
        except TimeoutError:
            error = f"The upload took more than {_LONGEST_UPLOAD} seconds."
            return JSONResponse({"error": error}, 408, _HANG_UP)
        except DataError as error:
            return JSONResponse({"error": str(error)}, 400, _HANG_UP)
        checked = request.query_params.get("check")
        if checked is not None:
            kind = "certificate" if path.suffix == ".json" else "table"
            desk.checks.setdefault(checked, {})[kind] = (name, path)
            return JSONResponse({"next": f"/{token}/check/{checked}"})
        if (result := request.query_params.get("watch")) is not None:
            try:
                await run_in_threadpool(desk.watched, result, path, request.query_params.get("day") or None)
            except DataError as error:
                return JSONResponse({"error": str(error).replace(str(path), name)}, 400)
            finally:
                shutil.rmtree(path.parent)
            return JSONResponse({"next": f"/{token}/watch/{result}"})
        if path.suffix == ".json":
            return JSONResponse({"error": "A certificate is checked on the page Check."}, 400)
        work = desk.add(Work(path, name))
        return JSONResponse({"next": f"/{token}/{work.id}/table"})

    def start(request: Request) -> Response:
        return show(request, "start", works=list(desk.works.values()))

    def try_adult(request: Request) -> Response:
        return to(desk.add(adult(desk.folder)), "columns")

    def new_check(request: Request) -> Response:
        return RedirectResponse(f"/{token}/check/{secrets.token_urlsafe(9)}", 303)

    def check_screen(request: Request) -> Response:
        held = desk.checks.get(request.path_params["check"], {})
        values: dict[str, Any] = {"id": request.path_params["check"], "held": held, "checked": None, "states": []}
        if "certificate" in held:
            try:
                found = check(held["certificate"][1], held["table"][1] if "table" in held else None)
                values |= {"checked": found, "states": verdict.verdict(found.certificate) if found else []}
            except DataError as error:
                values["error"] = str(error)
        return show(request, "check", **values)

    def watch_screen(request: Request) -> Response:
        result = request.path_params.get("result")
        values: dict[str, Any] = {"result": result, "folder": None, "lines": [], "curve": None, "watched": None}
        if result is not None:
            try:
                values["folder"], watched = desk.watched(result)
                values |= {"watched": watched, "lines": lines(watched), "curve": curve(watched)}
            except DataError as error:
                values["error"] = str(error)
        return show(request, "watch", results=desk.results(), **values)

    def releases(request: Request) -> Response:
        return show(request, "releases", releases=recorded_releases())

    def progress(request: Request) -> Response:
        run = work_of(request).run
        return JSONResponse({"state": "none"} if run is None else run.to_dict())

    def plan(request: Request) -> Response:
        work, target = work_of(request), _number(request.query_params.get("target", ""), 0.02, 0.3)
        label = next(iter(work.named("label")), None)
        best = {} if label is None else work.once("best", lambda: outlook.of_label(work.table(), label))
        return JSONResponse([*outlook.outlook(work.table(), target), *filter(None, [best.get(round(target, 2))])])

    routes = [
        Mount("/static", StaticFiles(packages=[("fairflows.app", "static")])),
        Route("/", start),
        Route("/adult", try_adult, methods=["POST"]),
        Route("/upload", upload, methods=["POST"]),
        Route("/check", new_check),
        Route("/check/{check}", check_screen),
        Route("/watch", watch_screen),
        Route("/watch/{result}", watch_screen),
        Route("/releases", releases),
        screen("table", lambda work, _: _table_screen(work)),
        posted("table", _read_again),
        screen("columns", lambda work, _: _columns_screen(work)),
        posted("columns", _change_columns),
        screen("target", lambda work, _: _target_screen(work)),
        posted("target", _begin),
        screen("sharing", lambda work, _: {"run": work.run}),
        posted("cancel", _cancel),
        screen("result", _result_screen),
        posted("release", _release),
        Route("/{work}/progress", progress),
        Route("/{work}/plan", plan),
        Route("/{work}/follows", lambda request: JSONResponse(findings.follows(work_of(request)))),
    ]
    guard = Middleware(Guard, token=token, port=port)

    async def failed(request: Request, error: Exception) -> Response:
        status, said = 500, "A bug in fairflows, please report it."
        if isinstance(error, HTTPException):
            status, said = error.status_code, error.detail
        elif isinstance(error, DataError):
            status, said = 400, str(error)
        answer = show(request, "stopped", None, status, error=said)
        answer.headers.update(HEADERS)
        return answer

    handlers: Any = dict.fromkeys((HTTPException, DataError, Exception), failed)
    return Starlette(routes=[Mount(f"/{token}", routes=routes)], middleware=[guard], exception_handlers=handlers)


def serve(file: Path | None, *, port: int = 0, browser: bool = True, say: Callable[[str], None] = print) -> None:
    """Show the page on the loopback address until it is interrupted."""
    import uvicorn

    token = secrets.token_urlsafe(24)
    with private_folder() as folder, socket.socket() as bound:
        bound.bind(("127.0.0.1", port))
        bound.listen()  # before the address is said
        desk, port = Desk(folder), bound.getsockname()[1]
        address = f"http://127.0.0.1:{port}/{token}/"
        if file is not None:
            work = desk.add(Work(file.absolute(), file.name))
            address += f"{work.id}/table"
        say(f"The page is at {address} (end it with Ctrl-C)")
        if browser:
            threading.Timer(0.5, webbrowser.open, [address]).start()
        config = uvicorn.Config(make_app(desk, token, port), log_level="error", access_log=False, server_header=False)
        uvicorn.Server(config).run(sockets=[bound])


# Screens ------------------------------------------------------------------------------------------------------------


def _table_screen(work: Work) -> dict[str, Any]:
    try:
        frame = work.frame
        sheets = sheets_of(work.path) if work.kind == "excel" else []
        lines = frame.head(_SAMPLE_LINES).astype(object).fillna("")
        return {"frame": lines, "n": len(frame), "notes": work.notes, "sheets": sheets}
    except DataError as error:
        said = _PARAMETERS.sub("", str(error)).replace(str(work.path), work.name)
        return {"frame": None, "n": 0, "notes": [], "sheets": [], "error": said}


def _read_again(work: Work, form: Mapping[str, str]) -> str:
    separator = {"tab": "\t"}.get(form.get("separator", ""), form.get("separator", ""))
    encoding, decimal, sheet = (form.get(name) or None for name in ("encoding", "decimal", "sheet"))
    how = TextFormat(separator or None, encoding, decimal, sheet, work.text_format.dates)
    work.changed(text_format=how, roles={})
    return "table"


def _columns_screen(work: Work) -> dict[str, Any]:
    found, rules, table = findings.findings_of(work) if work.named("sensitive") else ([], [], None)
    return {
        "columns": findings.columns_of(work),
        "roles": ROLES,
        "findings": found,
        "rules": rules,
        "summary": None if table is None else table.summary(),
        "can_go_on": table is not None and not any(finding.stops for finding in found),
    }


def _change_columns(work: Work, form: Mapping[str, str]) -> str:
    names = [str(name) for name in work.frame]
    roles = {name: form.get(f"role {name}", "feature") for name in names}
    change = findings.decoded(form["do"], findings.Change) if form.get("do", "").startswith("{") else findings.Change()
    roles |= change.roles
    settings: dict[str, Any] = {
        "roles": {name: role for name, role in roles.items() if name in names and role in ROLES and role != "feature"}
    }
    if "rules found" in form:
        shown, kept = (
            set(findings.decoded(form["rules found"], list[str])),
            {n[5:] for n in form if n.startswith("rule ")},
        )
        settings["not_kept"] = shown - kept
    cuts = {name: _numbers(text, name) for name in names if (text := form.get(f"cuts {name}", "").strip())}
    settings["cuts"] = cuts | change.cuts
    settings["text_format"] = replace(work.text_format, dates={**work.text_format.dates, **change.dates})
    for name in ("merge_small", "missing_group", "missing_label"):
        if (value := getattr(change, name)) is not None:
            settings[name] = value
    work.changed(**settings)
    return "target" if form.get("do") == "next" else "columns"


def _target_screen(work: Work) -> dict[str, Any]:
    table = work.table()
    chosen = work.target or outlook.default_target(table)
    if chosen is None:
        raise DataError("Nothing can be certified about these groups with so many persons: merge small ones.")
    holds = [
        "You hold the table, the model and its key. The receiver holds the shared table, its certificate and a report.",
        "Of a person, the receiver is assumed to see the shared row, and no other data of the same person.",
    ]
    return {"targets": outlook.TARGETS, "chosen": chosen, "said": outlook.outlook(table, chosen), "holds": holds}


def _begin(work: Work, form: Mapping[str, str]) -> str:
    work.changed(target=_number(form.get("target", ""), 0.02, 0.3), quick="quick" in form)
    rules = [rule for rule in findings.findings_of(work)[1] if rule not in work.not_kept]
    work.begin(None if work.target == outlook.default_target(work.table()) else work.target, rules)
    return "sharing"


def _cancel(work: Work, form: Mapping[str, str]) -> str:
    if work.run is not None:
        work.run.cancel()
    return "sharing"


def _result_screen(work: Work, request: Request) -> dict[str, Any]:
    if work.run is None or work.run.shared is None:
        raise DataError("There is no result yet: share the table first.")
    shared, table = work.run.shared, work.table()
    values = outlook.result(shared, table)
    pairs = values["pairs"]
    x, y = (request.query_params.get(name, "") for name in "xy")
    x, y = (x, y) if x in pairs and y in pairs else (pairs[0], pairs[-1]) if pairs else ("", "")
    together = outlook.pair(shared, table, x, y) if x != y else None
    proposed = Path.home() / f"{Path(work.name).stem}-shared"
    return {"r": values, "run": work.run, "x": x, "y": y, "pair": together, "proposed": proposed, "notes": work.notes}


def _release(work: Work, form: Mapping[str, str]) -> str:
    if work.run is None or form.get("run") != str(work.run.number):
        raise DataError("The result has changed since this page was shown: look at it again.")
    folder = Path(form.get("folder", "").strip()).expanduser()
    if not folder.is_absolute() or not str(folder).isprintable():
        raise DataError("State the folder in full, such as /home/me/loans-shared.")
    issuer, purpose, recipient = (form.get(name, "").strip() for name in ("issuer", "purpose", "recipient"))
    work.release(folder, About(issuer=issuer, purpose=purpose, recipient=recipient))
    return "result#released"


def _number(text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise DataError(f"The target must be a number from {low} to {high}; got {text[:20]!r}.")
    return value


def _numbers(text: str, name: str) -> list[float]:
    try:
        return [float(part) for part in text.replace(";", ",").split(",")]
    except ValueError:
        raise DataError(f"The cuts of {name} must be numbers with commas between them; got {text[:40]!r}.") from None


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form, which is small."""
    body = b""
    async for block in request.stream():
        body += block
        if len(body) > _MOST_FORM_BYTES:
            raise HTTPException(413, "The form is too large.")
    found = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100_000)
    return {name.replace("\r\n", "\n"): values[-1] for name, values in found.items()}  # as browsers end lines


@cache
def _environment() -> Environment:
    loader = PackageLoader("fairflows.app", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"thousands": "{:,}".format, "json": json.dumps}
    return environment
