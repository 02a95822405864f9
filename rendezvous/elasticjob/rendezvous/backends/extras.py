"""Third-party packages that only some backends need: imported when such a backend is made, never before."""

import importlib
from typing import Any, TypeAlias

ThirdParty: TypeAlias = Any
"""A module or an object of a package that has no types."""


def require(module: str, *, needed_by: str, extra: str) -> ThirdParty:
    """Import a third-party module.

    Raises:
        ModuleNotFoundError: It is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"{needed_by} needs the Python package {module!r}: pip install 'elasticjob[{extra}]'", name=error.name
        ) from error
