"""Requirements with hashes, from pip's own report."""

import pytest

from tools import hashes


def item(name, **archive):
    return {"metadata": {"name": name, "version": "1.0"}, "download_info": {"archive_info": archive}}


def test_every_package_has_its_version_and_hash_in_order():
    report = {"install": [item("Zeta", hashes={"sha256": "ab"}), item("alpha", hashes={"sha256": "cd"})]}
    assert hashes.lines(report) == ["alpha==1.0 --hash=sha256:cd", "Zeta==1.0 --hash=sha256:ab"]


def test_a_package_without_a_hash_is_named():
    with pytest.raises(ValueError, match=r"no sha256 for alpha==1\.0"):
        hashes.lines({"install": [item("alpha")]})
