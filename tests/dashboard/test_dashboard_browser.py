"""The dashboard and the exported page in a real browser."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fl_platform.dashboard.server import served
from fl_platform.reporting.page import make_page
from fl_platform.reporting.tables import statistic_table
from fl_platform.runs import metrics
from fl_platform.runs.frames import to_frames
from tests.dashboard.made_runs import HOSTILE, make_old, rows, write_rows, write_run
from tests.synthetic_logs import make_log

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine; $CHROMIUM may name one")
CHART = "app.made.curves.grid.charts.values().next().value"
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


def tick(page: Any, facet: str, *values: str) -> None:
    """Choose values of a list of filters, then close it."""
    page.locator(f"#filter-{facet} summary").click()
    for value in values:
        page.locator(f"#filter-{facet} .item", has=page.get_by_text(value, exact=True)).get_by_role("checkbox").click()
    page.keyboard.press("Escape")


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
    tick(page, "algorithm", "GradMA")
    wait_for_lines(page, 2)
    assert set(ids(page)) == {"gradma-0", "gradma-1"}
    page.fill("#search", "seed=1")
    wait_for_lines(page, 1)
    assert page.inner_text("#count") == "1 of 6 runs"
    page.reload()
    wait_for_lines(page, 1)
    page.locator("#clear").click()
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
    last = f"{CHART}.plot.data[0].at(-1)"
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
    low, high = page.evaluate(f"(({{scales}}) => [scales.x.min, scales.x.max])({CHART}.plot)")
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
        ("compare&compare=fedavg-0,gradma-0,odd", ".sided"),
        ("tuning", ".parallel canvas"),
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
    bars = [title.rpartition(": ")[2] for title in page.locator(".bubbles rect title").all_text_contents()]
    assert 1 < len(bars) <= 21
    assert sum(int(count.removesuffix(" workers")) for count in bars) == 20, "every worker is in one bar"
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
    page.get_by_label("Metric", exact=True).select_option(metrics.FORGETTING)
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
    for view, wanted in (("runs", ".runs"), ("curves", ".uplot"), ("tables", ".paper"), ("tuning", ".parallel canvas")):
        tab.page.goto("about:blank")
        tab.page.goto(f"{address}/#view={view}")
        tab.page.wait_for_selector(wanted)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390, view
    tab.page.evaluate("document.getElementById('root').textContent = '/a/long/path/to/some/runs'")
    tops = tab.page.evaluate("['.brand', '#theme', '#keys'].map((name) => document.querySelector(name).offsetTop)")
    assert max(tops) - min(tops) < 20, "the head stays on one line"


def test_a_phone_shows_accuracy_and_charts_first(tab: Tab, address: str) -> None:
    page = tab.page
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{address}/#view=runs")
    page.wait_for_selector(".runs tbody tr")
    box = page.locator(".runs thead th", has_text="Last acc.").bounding_box()
    assert box["x"] + box["width"] <= 390
    page.get_by_role("tab", name="Curves").click()
    page.wait_for_selector(".uplot")
    assert page.locator(".uplot").first.bounding_box()["y"] < 400
    assert page.locator("#search").is_hidden()
    page.get_by_role("button", name="Filters").click()
    assert page.locator("#search").is_visible()
    assert tab.complaints == []


def test_filters_understand_keys_and_say_what_is_wrong(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)
    wait_for_lines(page, 6)
    for text, count in (
        ("algorithm.name=gradma", 2),
        ("seed!=0", 2),
        ("top>=1% -algorithm=gradma", 4),
        ('id="live"', 1),
    ):
        page.fill("#search", text)
        wait_for_lines(page, count)
    page.fill("#search", "sed=1")
    playwright.expect(page.locator("#filter-error")).to_have_text(
        "no run has a key or figure 'sed'; did you mean 'seed'?"
    )
    assert page.locator(".runs tbody tr").count() == 1, "what was shown stays"
    for name in ("Curves", "Tables", "Tuning", "QP & memory", "Runs"):
        page.fill("#search", "matches-nothing")
        page.get_by_role("tab", name=name).click()
        playwright.expect(page.locator("main .empty")).to_contain_text(
            "None of the 6 runs fits the filter matches-nothing"
        )
    page.get_by_role("button", name="Clear the filter").click()
    wait_for_lines(page, 6)
    tick(page, "algorithm", "GradMA", "FedAvg")
    wait_for_lines(page, 4)
    assert [text for text in tab.complaints if "400" not in text] == []


def test_back_and_edited_addresses(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)
    wait_for_lines(page, 6)
    page.fill("#search", "gradma")
    wait_for_lines(page, 2)
    page.get_by_role("tab", name="Curves").click()
    page.wait_for_selector(".uplot")
    page.get_by_label("Lines by", exact=True).select_option("seed")
    wait_until(lambda: page.locator(".legend button").count() == 2)
    page.go_back()
    wait_until(lambda: page.get_by_label("Lines by", exact=True).input_value() == "algorithm")
    page.go_back()
    wait_for_lines(page, 2)
    page.go_back()
    wait_for_lines(page, 6)
    assert page.input_value("#search") == ""
    page.evaluate("location.hash = 'view=runs&q=fedavg&run=fedavg-1'")
    page.wait_for_selector("#details .uplot")
    wait_for_lines(page, 2)
    page.go_back()
    playwright.expect(page.locator("#details")).to_be_hidden()
    wait_for_lines(page, 6)
    assert tab.complaints == []


def test_columns_can_be_chosen_kept_and_grouped_by(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)
    wait_for_lines(page, 6)
    page.locator(".columns summary").click()
    page.get_by_label("Search columns").fill("omega")
    page.locator(".columns .item", has_text="data.dirichlet_omega").get_by_role("checkbox").click()
    page.get_by_label("Name of the set of columns").fill("mine")
    page.get_by_role("button", name="Save", exact=True).click()
    page.keyboard.press("Escape")
    playwright.expect(page.locator(".runs thead th").last).to_have_text("data.dirichlet_omega")
    assert page.locator("tr[data-id=fedavg-0] td").last.inner_text() == "0.1"
    page.reload()
    wait_for_lines(page, 6)
    playwright.expect(page.locator(".runs thead th").last).to_have_text("data.dirichlet_omega")
    page.locator(".columns summary").click()
    page.get_by_label("Saved sets of columns").select_option("Usual columns")
    playwright.expect(page.locator(".runs thead th").last).to_have_text("Run")
    page.get_by_label("Saved sets of columns").select_option("mine")
    page.keyboard.press("Escape")
    page.get_by_label("Group by", exact=True).select_option("algorithm")
    wait_for_lines(page, 4)
    page.get_by_label("Then group by").select_option("seed")
    page.get_by_role("button", name="algorithm=GradMA").click()
    wait_for_lines(page, 6)
    page.get_by_role("button", name="seed=1").click()
    wait_for_lines(page, 7)
    assert page.locator("tr[data-id=gradma-1]").count() == 1
    assert tab.complaints == []


def test_ticked_runs_are_plotted_and_compared(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)
    wait_for_lines(page, 6)
    for name in ("fedavg-0", "gradma-0", "gradma-1"):
        page.get_by_label(f"Tick {name}").click()
    playwright.expect(page.get_by_role("button", name="Plot 3 ticked")).to_be_enabled()
    page.keyboard.press("p")  # the focus is in a tick box
    wait_until(lambda: page.locator(".legend button").count() == 3)
    page.reload()
    wait_until(lambda: page.locator(".legend button").count() == 3)
    page.get_by_role("tab", name="Runs").click()
    page.get_by_role("button", name="Compare 3 ticked").click()
    page.wait_for_selector(".sided")
    head = page.locator(".sided").first.locator("thead th").all_inner_texts()
    assert [text.split()[-1] for text in head[1:]] == ["fedavg-0", "gradma-0", "gradma-1"]
    assert "algorithm.name" in page.locator(".sided").first.inner_text()
    page.get_by_label("Remove gradma-1").click()
    wait_until(lambda: page.locator(".sided").first.locator("thead th").count() == 3)
    assert tab.complaints == []


def test_a_chart_can_be_taken_away_and_have_logarithmic_axes(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(f"{address}/#view=curves&q=id%3Dfedavg-*,gradma-*&curves.metric=train/loss&curves.smooth=5")
    page.wait_for_selector(".uplot")
    files = {}
    for kind in ("CSV", "SVG", "PNG"):
        page.locator(".chart .menu summary").click()
        with page.expect_download() as caught:
            page.get_by_role("button", name=f"Save as {kind}").click()
        files[kind] = Path(caught.value.path()).read_bytes()
        page.keyboard.press("Escape")
    lines = files["CSV"].decode().splitlines()
    assert lines[0] == "line,runs,rounds,train/loss,low,high,unsmoothed"
    assert len(lines) == 1 + 2 * 20
    assert lines[1].startswith("FedAvg,2,1,2,")
    assert files["SVG"].startswith(b"<svg")
    assert b"Training loss" in files["SVG"]
    assert files["PNG"].startswith(b"\x89PNG")
    page.locator(".chart .menu summary").click()
    page.get_by_label("Vertical axis").select_option("log")
    assert page.evaluate(f"{CHART}.plot.scales.y.distr") == 3
    assert page.evaluate(f"{CHART}.plot.axes.map((axis) => axis.label)") == ["Round", "Training loss"]
    assert page.evaluate(f"{CHART}.plot.series.length") == 1 + 2 * 3 + 2, "mean and band, and the raw line"
    assert tab.complaints == []


def test_the_legend_draws_dashes_and_the_tooltip_names_every_line(tab: Tab, tmp_path: Path) -> None:
    names = ("fedavg", "fedprox", "fedmlb", "moon", "scaffold", "gradma_w", "fedavgm", "mifa", "mifam", "gradma_s")
    names += ("fedproxm", "fedmlbm", "moonm", "feddyn", "mimelite", "gradma")
    file = tmp_path / "report.html"
    file.write_text(make_page("Many", [], [make_log(name) for name in names]), encoding="utf-8")
    page = tab.page
    page.goto(file.as_uri())
    page.wait_for_selector(".uplot")
    swatches = page.locator(".legend .swatch line").all()
    looks = {(one.get_attribute("stroke"), one.get_attribute("stroke-dasharray")) for one in swatches}
    assert len(swatches) == len(looks) == 16
    page.locator(".u-over").hover()
    assert page.locator(".tip .swatch").count() == 16
    assert tab.complaints == []


def test_a_sweep_can_be_brushed_and_filtered_by(tab: Tab, tmp_path: Path) -> None:
    for place in range(24):
        level = 0.9 - 0.03 * abs(place - 12)
        made = [{**one, metrics.TOP_ACCURACY: level} for one in rows(seed=place, rounds=4, level=level)]
        write_run(
            tmp_path,
            f"r{place:02d}",
            "gradma",
            0,
            made=made,
            local_lr=0.01 * (place + 1),
            batch_size=32 * (1 + place % 2),
        )
    with served(tmp_path) as (found, _):
        page = tab.page
        page.goto(f"{found}/#view=tuning")
        page.wait_for_selector(".importance tr")
        first = page.locator(".importance tr").first.inner_text()
        assert first.startswith("local_lr")
        assert "n = 24 runs" in page.inner_text(".importance")
        box = page.locator("[data-axis=local_lr]").bounding_box()
        page.mouse.move(box["x"] + 14, box["y"] + 8)
        page.mouse.down()
        page.mouse.move(box["x"] + 14, box["y"] + box["height"] / 2, steps=4)
        page.mouse.up()
        assert " of 24 runs" in page.locator(".parallel").locator("xpath=../..").inner_text()
        page.get_by_role("button", name="Filter by these").click()
        wait_until(lambda: 5 < int(page.inner_text("#count").split()[0]) < 20)
        page.get_by_label("Horizontal quantity").select_option("batch_size")
        wait_until(lambda: "tuning.x=batch_size" in page.url)
    assert tab.complaints == []


def test_the_keyboard_reaches_everything(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)
    wait_for_lines(page, 6)
    page.keyboard.press("/")
    page.keyboard.type("gradma")
    wait_for_lines(page, 2)
    page.locator(".runs tbody tr").first.focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    page.wait_for_selector("#details .uplot")
    page.keyboard.press("Escape")
    playwright.expect(page.locator("#details")).to_be_hidden()
    page.keyboard.press("c")
    page.wait_for_selector(".sided")
    page.keyboard.press("2")
    page.wait_for_selector(".uplot")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("d")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    page.wait_for_selector(".uplot")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    assert tab.complaints == []
