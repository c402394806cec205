"""A real Chromium, for tests of pages."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.waiting import until

MAX_PICTURE_BYTES: Final = 200_000
NARROW: Final = 420
WIDTH: Final = "return document.documentElement.scrollWidth"
"""A script: the width that a page needs."""
_COLOURS: Final = 200
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


def why_no_chromium() -> str:
    """'' where the machine has it, and its driver."""
    if not any(map(shutil.which, _NAMES)) or shutil.which("chromedriver") is None:
        return "no Chromium with its driver (Debian: apt-get install --no-install-recommends chromium chromium-driver)"
    return ""


class Chromium:
    """One window, which is asked and used as a person would."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get(url)

    def log_in(self, address: str, token: str) -> None:
        """By the form at this address."""
        self.open(address)
        self._as_soon_as_there("#token", lambda element: element.send_keys(token))
        self.click("main button")
        until(lambda: self.driver.current_url != address, "the page behind the login")

    def all(self, selector: str) -> Sequence[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Of what the selector finds, in one question: what is replaced meanwhile does not matter."""
        script = "return [...document.querySelectorAll(arguments[0])].map(found => found.innerText.trim())"
        return list(self.driver.execute_script(script, selector))

    def sees(self, selector: str, text: str) -> None:
        """Wait until one of these has the text."""
        until(
            lambda: any(text in found for found in self.texts(selector)),
            lambda: f"{text!r} in {selector}, which says {self.texts(selector)}",
        )

    def click(self, selector: str) -> None:
        self._as_soon_as_there(selector, lambda element: element.click())

    def click_at(self, selector: str, right: int, down: int) -> None:
        """So many pixels from the middle of an element."""

        def click(element: WebElement) -> None:
            ActionChains(self.driver).move_to_element_with_offset(element, right, down).click().perform()

        self._as_soon_as_there(selector, click)

    def _as_soon_as_there(self, selector: str, use: Callable[[WebElement], None]) -> None:
        """One that is renewed meanwhile is looked for again.

        The finger is put down before: nothing goes from under it. A page that renews itself five times a second left no
        time, on a busy machine, from finding an element to clicking it.
        """
        missing: list[WebDriverException] = []

        def used() -> bool:
            self._finger("down")
            try:
                use(self.driver.find_element(By.CSS_SELECTOR, selector))
            except (NoSuchElementException, StaleElementReferenceException) as failure:
                missing[:] = [failure]
                self._finger("up")
                return False
            return True

        until(used, lambda: f"{selector} to be clicked, {missing[0].msg if missing else ''}")

    def _finger(self, where: str) -> None:
        self.driver.execute_script("document.dispatchEvent(new PointerEvent(`pointer${arguments[0]}`))", where)

    def press(self, *keys: str) -> None:
        """As if typed, wherever the focus is."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def asked(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def prefer(self, scheme: str) -> None:
        """`dark` or `light`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    @contextmanager
    def narrow(self, height: int = 850) -> Iterator[None]:
        """A window of `NARROW` pixels."""
        size = {"width": NARROW, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def complaints(self) -> list[str]:
        """What it has to say of pages since it was asked last: errors of scripts, what a policy forbids."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def picture(self, name: str, directory: Path) -> Path:
        """A PNG of the window; POK_PICTURES names another directory for it."""
        file = Path(os.environ.get("POK_PICTURES") or directory) / name
        image = Image.open(io.BytesIO(self.driver.get_screenshot_as_png())).convert("RGB")
        image.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
        return file


@contextmanager
def chromium(width: int = 1360, height: int = 850) -> Iterator[Chromium]:
    """Without a display. Raises LookupError: there is none (`why_no_chromium`)."""
    if reason := why_no_chromium():
        raise LookupError(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, _NAMES)))
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={width},{height}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Chromium(driver)
    finally:
        driver.quit()
