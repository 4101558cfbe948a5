"""The SNN frameworks, where they are installed: they are optional, and several cannot share an environment."""

import os
import warnings
from importlib import import_module
from types import ModuleType
from typing import NoReturn

import pytest


def framework(name: str) -> ModuleType:
    """The module of that name, such as "snntorch" or "spikingjelly.activation_based.neuron".

    Where its package is absent, the test or test file that asks skips. In CI it fails, but for packages that are named
    in ABSENT_FRAMEWORKS (separated by commas). Warnings that a framework gives while it is imported are its own affair.
    """
    package = name.partition(".")[0]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
            return import_module(name)
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] != package:
            raise
    lack_package(package)


def lack_package(package: str) -> NoReturn:
    """Skip the test or file that needs a package; in CI, fail, but for packages of ABSENT_FRAMEWORKS."""
    text = f"{package} is not installed"
    if os.environ.get("CI") and package not in os.environ.get("ABSENT_FRAMEWORKS", "").split(","):
        pytest.fail(f"{text}; CI installs it, or names it in ABSENT_FRAMEWORKS")
    pytest.skip(text, allow_module_level=True)
