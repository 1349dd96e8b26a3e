"""What pyproject.toml cannot say: the build copies ``sweeps/`` and ``reports/`` into the package."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

REPORTS = sorted(path.parent.as_posix() for path in Path("reports").glob("*/report.yaml"))
COPIED = {"sweeps": ["*.yaml"], **{folder: ["report.yaml", "runs.parquet", "*.md"] for folder in REPORTS}}
"""Folder of the checkout -> which of its files go to ``fl_platform/paper/files``."""


class BuildWithDefinitions(build_py):
    """Also copy sweeps and report definitions. An editable install reads them in the checkout."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for folder, patterns in COPIED.items():
            target = Path(self.build_lib, "fl_platform", "paper", "files", folder)
            target.mkdir(parents=True, exist_ok=True)
            for source in sorted(path for pattern in patterns for path in Path(folder).glob(pattern)):
                self.copy_file(str(source), str(target / source.name), preserve_mode=False)


setup(cmdclass={"build_py": BuildWithDefinitions})
