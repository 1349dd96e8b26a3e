"""The documents: links lead somewhere, pictures are there, the site is built, the README's Python runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools import site

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGE_IDS = [str(path.relative_to(ROOT)) for path in PAGES]


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings of a page as link targets."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=[*PAGE_IDS, "CONTRIBUTING.md"])
def test_links_and_pictures_of_a_page_are_there(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text):
        address, _, anchor = (target[0] or target[1]).partition("#")
        if address.startswith("https://"):
            continue
        found = page.parent / address if address else page
        assert found.exists(), f"{page.name}: {address}"
        assert not anchor or anchor in anchors(found), f"{page.name}: {address}#{anchor}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


def test_every_page_is_in_the_site() -> None:
    content = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r": (\S+\.md)$", content, re.MULTILINE))
    assert {str(path.relative_to(ROOT)) for path in PAGES} <= listed
    assert all((ROOT / name).is_file() for name in listed)
    assert yaml.safe_load(content)["theme"]["font"] is False, "fonts would be fetched from elsewhere"


def test_formulas_become_mathml_and_code_stays() -> None:
    pytest.importorskip("latex2mathml", reason="requirements-dev.txt is not installed completely")
    made = site.with_formulas("a $x_t$ b\n\n```math\nx = 1\n```\n```sh\necho $HOME $PATH\n```\n")
    assert made.count("<math") == 2
    assert "echo $HOME $PATH" in made


def test_the_site_is_built_and_asks_for_nothing_elsewhere(tmp_path: Path) -> None:
    for package in ("mkdocs", "material", "latex2mathml"):
        pytest.importorskip(package, reason="requirements-dev.txt is not installed completely")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    source = site.collect(ROOT, tmp_path / "source")
    build(load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(source), site_dir=str(tmp_path / "site")))
    for name in ("index", "docs/algorithms", "docs/python", "docs/options"):
        text = (tmp_path / "site" / f"{name}.html").read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"?https?:", text)


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    """The lines of the API, then the run of the method, in a directory that has the method as fedclip.py."""
    api, method = blocks(ROOT / "README.md", "python")
    (tmp_path / "fedclip.py").write_text(method, encoding="utf-8")
    own = (
        "fl.run({'plugins': ['fedclip'], 'algorithm.max_norm': 0.5}, algorithm='fedclip', num_rounds=1, progress=False)"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{api}\nprint(type(network).__mro__)\n{own}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "torch.nn.modules.module.Module" in done.stdout
    assert len(list(tmp_path.glob("runs/*/result.json"))) == 2
