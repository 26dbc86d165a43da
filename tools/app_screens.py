"""Take pictures of the screens of `fairflows app` for the docs: Adult, at 1200 px and light, at 400 px and dark.

python tools/app_screens.py [folder], which needs Chromium and its driver
"""

import base64
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from webdriver import Browser  # noqa: E402

VIEWS = ((1200, "light"), (400, "dark"))
MOST_HEIGHT = 2400


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home, "FAIRFLOWS_LEDGER": f"{home}/ledger"}
        command = [sys.executable, "-m", "fairflows", "app", "--no-browser"]
        page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        browser = Browser()
        try:
            take_all(browser, re.search(r"http\S+", page.stdout.readline())[0], out, Path(home), page.pid)
        finally:
            browser.close()
            page.terminate()
            page.wait()


def take_all(browser: Browser, address: str, out: Path, home: Path, pid: int) -> None:
    begun, used = time.monotonic(), processor_seconds(pid)
    browser.go(address)
    take(browser, out, "start")
    browser.click("form button")
    root = at(browser, "columns")
    take(browser, out, "columns")
    browser.go(f"{root}/table")
    take(browser, out, "table")
    browser.go(f"{root}/target")
    take(browser, out, "target")
    browser.click("form button")
    at(browser, "sharing")
    time.sleep(4)
    take(browser, out, "sharing")
    at(browser, "result")
    used = processor_seconds(pid) - used
    print(f"from the start to the result: {time.monotonic() - begun:.0f} s with pictures; processor: {used:.0f} s")
    take(browser, out, "result")
    browser.click("[action=release] button")
    at(browser, "result", "document.querySelector('.piles')")
    browser.run("document.querySelector('.piles').scrollIntoView()")
    address = "/".join(address.split("/")[:4])
    browser.go(f"{address}/check")
    browser.choose("#file", *(home / "adult-shared" / name for name in ("certificate.json", "shared.csv")))
    at(browser, "", "document.querySelector('.results')")
    take(browser, out, "check")
    browser.go(f"{address}/watch")
    browser.click("main li a")
    at(browser, "watch", "document.getElementById('file')")
    rows = pd.read_csv(home / "adult-shared" / "shared.csv")  # and a group by chance: another population
    rows["sex"] = np.random.default_rng(0).choice(["female", "male"], len(rows), p=[0.325, 0.675])
    for day in (1, 8, 15, 22):
        rows.sample(2_000, random_state=day).to_csv(home / "later.csv", index=False)
        browser.run(f"document.querySelector('[type=date]').value = '2026-10-{day:02}'")
        browser.choose("#file", home / "later.csv")
        at(browser, "watch", f"document.body.innerText.includes('to 2026-10-{day:02}:')")
    take(browser, out, "watch")
    browser.go(f"{address}/releases")
    take(browser, out, "releases")


def processor_seconds(pid: int) -> float:
    """Return the seconds that a process had a processor, as Linux counts them; of a busy machine they say more."""
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def at(browser: Browser, screen: str, ready: str = "true") -> str:
    """Wait for a screen, and return the address of its table."""
    while not browser.run(
        f"return location.pathname.includes({screen!r}) && document.readyState == 'complete' && !!({ready})"
    ):
        time.sleep(0.2)
    return browser.run("return location.href").rsplit("/", 1)[0]


def take(browser: Browser, out: Path, name: str) -> None:
    """Write each view, all four of which were looked at, and the two of the docs side by side."""
    images = {}
    for width in (1200, 400):
        for scheme in ("light", "dark"):
            browser.resize(width, scheme, height=500)
            size = browser.command("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": width, "height": min(size["height"], MOST_HEIGHT), "scale": 1}
            taken = browser.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
            images[width, scheme] = Image.open(io.BytesIO(base64.b64decode(taken["data"])))
    for shown, views in (("", VIEWS), ("-other", ((1200, "dark"), (400, "light")))):
        pair = [images[view] for view in views]
        both = Image.new("RGB", (1640, max(image.height for image in pair)), "#80868b")
        both.paste(pair[0], (0, 0))
        both.paste(pair[1], (1240, 0))
        both.quantize(256).save(out / f"app-{name}{shown}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
