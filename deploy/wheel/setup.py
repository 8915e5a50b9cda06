"""A wheel of programs: for one platform, and for any Python 3."""

import os

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class Programs(Distribution):
    def has_ext_modules(self) -> bool:  # It would pass for pure Python, and for any platform.
        return True


class AnyPython(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(version=os.environ["PLUMBLINE_VERSION"], distclass=Programs, cmdclass={"bdist_wheel": AnyPython})
