"""The images of this project: pause, plain Python, and the operator. All in the cache, keyed by what they are made of.

The operator's image holds what the Dockerfile puts into it, made without Docker: Debian's Python, the locked
dependencies of the operator, and the wheel of this repository on top.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomllib

from tests.cluster import packages
from tests.cluster.commands import run, run_long
from tests.cluster.errors import ClusterError
from tests.cluster.images import build_image, write_layer
from tests.cluster.locks import exclusive
from tests.cluster.node import PAUSE_IMAGE
from tests.cluster.paths import REPOSITORY, cache_dir
from tests.cluster.progress import step

PYTHON_IMAGE = "elasticjob/python:3.11"
PYTHON_VERSION = (3, 11)
USER = "65532:65532"
_SUITE = "bookworm"
_SITE = "usr/local/lib/python3.11/dist-packages"
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_TIMEOUT = 1200.0


def images_dir() -> Path:
    """The images' place in the cache."""
    path = cache_dir() / "images"
    path.mkdir(exist_ok=True)
    return path


def _made(path: Path, make: Callable[[Path], object]) -> Path:
    """The cache entry at `path`, which `make` brings into being complete or not at all."""
    if not path.exists():
        with exclusive(path.name, timeout=_TIMEOUT, waiting_for=f"making of {path.name}"):
            if not path.exists():
                make(path)
    return path


def _key(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@contextmanager
def _scratch() -> Iterator[Path]:
    # Beside the cache entries: what is finished there gets its place by a rename.
    with tempfile.TemporaryDirectory(dir=images_dir(), prefix="scratch-") as path:
        yield Path(path)


def pause_image(programs: Path) -> Path:
    """The image that holds a pod's namespaces open."""
    return _made(
        images_dir() / f"pause-{programs.name}.tar",
        lambda path: build_image(
            PAUSE_IMAGE,
            archive=path,
            contents={"pause": programs / "pause"},
            entrypoint=["/pause"],
            user=USER,
        ),
    )


def base_layer() -> Path:
    """A minimal Debian with Python 3.11, as one layer."""
    return _made(images_dir() / f"base-{_SUITE}.layer", _bootstrap)


def _bootstrap(path: Path) -> None:
    packages.ensure(packages.IMAGE_PACKAGES)
    log = cache_dir() / "mmdebstrap.log"
    with _scratch() as scratch, step("installing a minimal Debian with Python for images"):
        archive = scratch / "base.tar"
        # Unsafe is a crash in the middle: then there is no cache entry, and the next run starts anew.
        settings = ["--variant=minbase", "--include=python3,ca-certificates", "--dpkgopt=force-unsafe-io"]
        command = ["mmdebstrap", *settings, _SUITE, str(archive)]
        run_long(command, what="mmdebstrap", log=log, timeout=_TIMEOUT)
        archive.replace(path)


def python_image() -> Path:
    """Debian's Python and nothing else, for training pods (torch comes by a hostPath mount)."""
    base = base_layer()
    return _made(
        images_dir() / f"python-{_SUITE}-{_key(_ENVIRONMENT, USER)}.tar", lambda path: _build_python_image(path, base)
    )


def _build_python_image(path: Path, base: Path) -> None:
    with _scratch() as scratch:
        build_image(
            PYTHON_IMAGE,
            archive=path,
            base=[base],
            contents=_python_name(scratch),
            entrypoint=["python"],
            env=_ENVIRONMENT,
            user=USER,
        )


def _python_name(scratch: Path) -> dict[str, Path]:
    # Debian calls it python3 only; the usual images of Python have both names.
    link = scratch / "python"
    link.symlink_to("/usr/bin/python3")
    return {"usr/local/bin/python": link}


def operator_image_name(repository: Path = REPOSITORY) -> str:
    """The name by which pods ask for the operator's image."""
    return f"elasticjob/operator:{_project(repository)['project']['version']}"


def operator_image(repository: Path = REPOSITORY) -> Path:
    """The operator's image with the repository's present content; made anew only when that has changed."""
    base = [base_layer(), dependencies_layer(repository)]
    archive, key_file = images_dir() / "operator.tar", images_dir() / "operator.key"
    with (
        exclusive("operator-image", timeout=_TIMEOUT, waiting_for="build of the operator's image"),
        _scratch() as scratch,
    ):
        source = scratch / "source"
        copy_project(repository, source)
        key = _key(tree_digest(source), [layer.name for layer in base], _ENVIRONMENT, USER)
        if not (archive.exists() and key_file.exists() and key_file.read_text() == key):
            key_file.unlink(missing_ok=True)
            with step("building the operator's image"):
                _build_operator_image(repository, source, archive=archive, base=base)
            key_file.write_text(key)
    return archive


def _build_operator_image(repository: Path, source: Path, *, archive: Path, base: list[Path]) -> None:
    build_image(
        operator_image_name(repository),
        archive=archive,
        base=base,
        contents={_SITE: _install_project(source), **_python_name(source.parent)},
        entrypoint=["python", "-m", "elasticjob.operator"],
        env=_ENVIRONMENT,
        user=USER,
    )


def image_python() -> str:
    """A Python of the images' version: what it installs must be the builds that the images' Python takes."""
    if sys.version_info[:2] == PYTHON_VERSION:
        return sys.executable
    wanted = ".".join(map(str, PYTHON_VERSION))
    found = shutil.which(f"python{wanted}")
    if found is None:
        raise ClusterError(
            f"the images hold Python {wanted}, this is {sys.version.split()[0]}: put python{wanted} on PATH"
        )
    return found


def _project(repository: Path) -> dict[str, Any]:
    with (repository / "pyproject.toml").open("rb") as content:
        return tomllib.load(content)


def operator_requirements(project: dict[str, Any]) -> list[str]:
    """What the operator needs with all its state backends, out of a parsed pyproject.toml."""
    metadata = project["project"]
    extras = metadata["optional-dependencies"]
    return [*metadata["dependencies"], *extras["operator"], *extras["etcd"]]


def dependencies_layer(repository: Path) -> Path:
    """The locked dependencies of the operator, as a layer keyed by what decides them."""
    lock = repository / "requirements.lock"
    requirements = operator_requirements(_project(repository))
    return _made(
        images_dir() / f"dependencies-{_key(lock.read_text(), requirements)}.layer",
        lambda path: _install_dependencies(requirements, lock=lock, layer=path),
    )


def _install_dependencies(requirements: list[str], *, lock: Path, layer: Path) -> None:
    log = cache_dir() / "dependencies.log"
    with _scratch() as scratch, step("installing the operator's dependencies for its image"):
        site = scratch / "site"
        command = [*_pip("install"), "--no-compile", "--target", str(site), "--constraint", str(lock), *requirements]
        run_long(command, what="pip install", log=log, timeout=_TIMEOUT)
        write_layer({_SITE: site}, layer)


def _install_project(source: Path) -> Path:
    """The wheel of a copy of the repository (setuptools writes into the tree that it builds), unpacked."""
    wheels, site = source.parent / "wheels", source.parent / "site"
    run([*_pip("wheel"), "--no-deps", "--wheel-dir", wheels, source], timeout=300)
    (wheel,) = wheels.glob("*.whl")
    # A wheel of pure Python is installed by unpacking it. pip would add the path of the wheel, another one every time.
    with zipfile.ZipFile(wheel) as content:
        content.extractall(site)
    return site


def tree_digest(top: Path) -> str:
    """A digest of the names and contents of all files below a directory."""
    files = sorted(path for path in top.rglob("*") if path.is_file())
    return _key(*((str(path.relative_to(top)), hashlib.sha256(path.read_bytes()).digest()) for path in files))


def copy_project(repository: Path, target: Path) -> None:
    """Copy what the wheel is made of: the package roots, the build's settings and the files that these name."""
    project = _project(repository)
    roots = project["tool"]["setuptools"]["packages"]["find"]["where"]
    files = ["pyproject.toml", project["project"]["readme"], *project["project"].get("license-files", [])]
    target.mkdir()
    for root in roots:
        shutil.copytree(repository / root, target / root, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in files:
        shutil.copy2(repository / name, target / name)


def _pip(command: str) -> list[str]:
    return [image_python(), "-m", "pip", command, "--disable-pip-version-check"]
