"""The dashboard and the exported page in a real browser."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fl_platform.reporting.page import make_page
from fl_platform.reporting.tables import statistic_table
from fl_platform.runs import metrics
from fl_platform.runs.frames import to_frames
from tests.dashboard.made_runs import HOSTILE, make_old, rows, served, write_rows, write_run
from tests.synthetic_logs import make_log

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine; $CHROMIUM may name one")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield opened
        opened.close()


class Tab:
    """A page, the complaints of its console, and every address it asked for."""

    def __init__(self, browser: Any) -> None:
        self.page = browser.new_page(viewport={"width": 1280, "height": 800})
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on(
            "console", lambda message: self.complaints.append(message.text) if message.type == "error" else None
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))


@pytest.fixture
def tab(browser: Any) -> Iterator[Tab]:
    opened = Tab(browser)
    yield opened
    opened.page.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browsed")
    for name in ("fedavg", "gradma"):
        for seed in range(2):
            write_run(root, f"{name}-{seed}", name, seed)
    write_run(root, "odd", HOSTILE, status="diverged", tracking={"tags": [HOSTILE]}, note=HOSTILE)
    make_old(root)
    write_run(root, "live", "moon", status=None, made=rows(rounds=3))
    return root


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    with served(place) as (found, _):
        yield found


def ids(page: Any) -> list[str]:
    return [line.get_attribute("data-id") for line in page.locator(".runs tbody tr").all()]


def wait_for_lines(page: Any, count: int) -> None:
    playwright.expect(page.locator(".runs tbody tr")).to_have_count(count)


def wait_until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """The page's policy forbids the eval that playwright's own wait needs."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.1)


def test_runs_are_listed_sorted_filtered_and_opened(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)
    page.wait_for_selector("tr[data-id=live]")
    assert len(ids(page)) == 6
    page.get_by_role("button", name="Top acc.").click()
    tops = [text for text in page.locator(".runs tbody td:nth-child(7)").all_inner_texts() if text]
    values = [float(text.rstrip(" %")) for text in tops]
    assert values == sorted(values, reverse=True)
    page.get_by_role("button", name="Top acc.").click()
    assert ids(page)[0] == "live", "it has hardly begun"
    page.select_option("#filter-algorithm", "GradMA")
    wait_for_lines(page, 2)
    assert set(ids(page)) == {"gradma-0", "gradma-1"}
    page.fill("#search", "seed=1")
    wait_for_lines(page, 1)
    assert page.inner_text("#count") == "1 of 6 runs"
    page.reload()
    wait_for_lines(page, 1)
    page.get_by_role("button", name="Clear").click()
    wait_for_lines(page, 6)
    page.click("tr[data-id=gradma-0]")
    page.wait_for_selector("#details .uplot")
    assert "dirichlet_omega" in page.inner_text("#details")
    page.keyboard.press("Escape")
    assert page.is_hidden("#details")
    assert tab.complaints == []
    assert {url.split("/")[2] for url in tab.asked if url.startswith("http")} == {address.split("/")[2]}


def test_a_new_round_appears_without_reload(tab: Tab, address: str, place: Path) -> None:
    page = tab.page
    page.goto(f"{address}/#view=curves&q=live")
    page.wait_for_selector(".uplot")
    last = "FL.app.made.curves.grid.charts.values().next().value.plot.data[0].at(-1)"
    before = page.evaluate(last)
    page.evaluate("window.mark = 1")
    write_rows(place / "live" / "attempts" / "0001" / "rounds.jsonl", [{**rows()[0], metrics.ROUND: before + 1}], "a")
    wait_until(lambda: page.evaluate(last) == before + 1)
    assert page.evaluate("window.mark") == 1
    assert tab.complaints == []


def test_charts_zoom_and_lines_can_be_switched(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(f"{address}/#view=curves&scenario=Digits%2C+ω%3D0.1%2C+S%3D10")
    page.wait_for_selector(".uplot")
    box = page.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 60, steps=5)
    page.mouse.up()
    page.wait_for_selector(".reset:not([hidden])")
    low, high = page.evaluate(
        "(({scales}) => [scales.x.min, scales.x.max])(FL.app.made.curves.grid.charts.values().next().value.plot)"
    )
    assert 9 < low < 12 < high < 17
    page.get_by_role("button", name="Reset zoom").click()
    assert page.locator(".reset[hidden]").count() == 1
    first = page.locator(".legend button").first
    first.click()
    assert page.locator(".legend button").first.get_attribute("aria-pressed") == "false"
    assert tab.complaints == []


def test_every_view_opens_without_complaint(tab: Tab, address: str) -> None:
    page = tab.page
    for view, wanted in (
        ("tables", ".paper"),
        ("qp", ".uplot"),
        ("compare&a=fedavg-0&b=gradma-0", ".pairs"),
        ("runs&run=odd", "#details .pairs"),
    ):
        page.goto("about:blank")
        page.goto(f"{address}/#view={view}")
        page.wait_for_selector(wanted)
    assert page.evaluate("window.hit") is None, "a name was run"
    assert HOSTILE in page.inner_text("#details")
    assert tab.complaints == []


def test_the_partition_is_drawn(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(f"{address}/#run=fedavg-0")
    page.get_by_role("button", name="Show what each worker owns").click()
    page.wait_for_selector(".bubbles circle", timeout=60_000)
    assert page.locator(".bubbles circle").count() > 20
    assert tab.complaints == []


def test_the_exported_page_works_from_a_file(tab: Tab, tmp_path: Path) -> None:
    logs = [make_log(name, seed) for name in ("fedavg", "gradma") for seed in range(2)]
    logs.append(make_log(HOSTILE, note=HOSTILE))
    file = tmp_path / "report.html"
    file.write_text(make_page(HOSTILE, [statistic_table(to_frames(logs))], logs), encoding="utf-8")
    page = tab.page
    page.goto(file.as_uri())
    page.wait_for_selector(".uplot")
    assert page.inner_text("h1") == HOSTILE
    assert page.inner_text(".paper thead th") == "Algorithm"
    page.get_by_label("Metric").select_option(metrics.FORGETTING)
    page.wait_for_selector(".uplot")
    page.get_by_label("Filter runs").fill("gradma")
    assert len(ids(page)) == 2
    page.locator(".runs tbody tr").first.click()
    assert "data.dirichlet_omega" in page.inner_text("#config")
    assert page.evaluate("window.hit") is None
    assert tab.complaints == []
    assert [url for url in tab.asked if not url.startswith(("file:", "data:"))] == []


def test_a_long_table_grows_on_demand(tab: Tab, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(make_page("Long", [], [make_log(seed=seed, rounds=2) for seed in range(450)]), encoding="utf-8")
    tab.page.goto(file.as_uri())
    wait_for_lines(tab.page, 200)
    tab.page.get_by_role("button", name="Show more (250 are not shown)").click()
    tab.page.get_by_role("button", name="Show more (50 are not shown)").click()
    wait_for_lines(tab.page, 450)
    assert tab.page.locator(".more").is_hidden()
    assert tab.complaints == []


def test_a_narrow_page_does_not_scroll_sideways(tab: Tab, address: str) -> None:
    tab.page.set_viewport_size({"width": 390, "height": 800})
    for view, wanted in (("runs", ".runs"), ("curves", ".uplot"), ("tables", ".paper")):
        tab.page.goto("about:blank")
        tab.page.goto(f"{address}/#view={view}")
        tab.page.wait_for_selector(wanted)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390, view
