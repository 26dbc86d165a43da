"""As much of the WebDriver protocol as the browser tests need, over the standard library."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request


def missing() -> str | None:
    """What keeps the tests from running, if anything."""
    names = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(names)} not installed" if names else None


class Browser:
    """A headless Chromium, driven by chromedriver."""

    def __init__(self, *, network: bool = False) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={self._port}", "--silent"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options = {"args": arguments, "binary": shutil.which("chromium")}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"} | ({"performance": "ALL"} if network else {}),
        }
        for attempt in range(100):
            try:
                made = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
                break
            except OSError:
                if attempt == 99:
                    raise
                time.sleep(0.2)
        self._session = f"/session/{made['sessionId']}"
        self._send("POST", f"{self._session}/timeouts", {"script": 100_000})

    def _send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, path, width) -> None:
        """Open a file in a viewport of this width."""
        self.resize(width)
        self.go(path.resolve().as_uri())

    def resize(self, width, scheme="light", height=1200) -> None:
        """Take a viewport of this width, and light or dark colours."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.command("Emulation.setDeviceMetricsOverride", **metrics)
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def command(self, name, **parameters):
        """What a command of the browser's own protocol returns."""
        return self._send("POST", f"{self._session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def go(self, address) -> None:
        """Open an address."""
        self._send("POST", f"{self._session}/url", {"url": address})

    def press(self, *keys) -> None:
        """Press keys, one after the other."""
        actions = [{"type": how, "value": key} for key in keys for how in ("keyDown", "keyUp")]
        self._send("POST", f"{self._session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def click(self, selector) -> None:
        """Click an element by the mouse."""
        element = self._find(selector)
        self._send("POST", f"{self._session}/element/{element}/click", {})

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call, by a browser with a network log."""
        entries = self._send("POST", f"{self._session}/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def _find(self, selector) -> str:
        found = self._send("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        return next(iter(found.values()))

    def run(self, script):
        """What a script returns."""
        return self._send("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def wait_for(self, script, *arguments):
        """What the promise that a script returns comes to."""
        waiting = "const done = arguments[arguments.length - 1]; const given = [...arguments].slice(0, -1);"
        waiting += f" (async (...given) => {{ {script} }})(...given).then(done, (error) => done('error: ' + error));"
        return self._send("POST", f"{self._session}/execute/async", {"script": waiting, "args": list(arguments)})

    def choose(self, selector, *paths) -> None:
        """Choose files in an input."""
        text = "\n".join(str(path.resolve()) for path in paths)
        self._send("POST", f"{self._session}/element/{self._find(selector)}/value", {"text": text})

    def console(self) -> list:
        """Messages of the browser's console."""
        return self._send("POST", f"{self._session}/se/log", {"type": "browser"})

    def close(self) -> None:
        """End the session and the driver."""
        try:
            self._send("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait()
