"""What pyproject.toml cannot say: the build copies ``sweeps/`` and ``reports/`` into the package."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

COPIED = {
    "sweeps": ["*.yaml"],
    "reports/demo": ["report.yaml"],
    "reports/mnist": ["report.yaml", "runs.parquet", "README.md", "variants.md"],
    "reports/rates": ["report.yaml", "runs.parquet", "README.md"],
    "reports/settled": ["report.yaml", "runs.parquet", "README.md"],
    "reports/cifar10": ["report.yaml", "runs.parquet", "README.md"],
    "reports/robust": ["report.yaml", "runs.parquet", "README.md"],
    "reports/benchmark": ["report.yaml", "runs.parquet", "README.md"],
}
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
