"""Container images without a registry: OCI image layouts in one tar file, written in Python.

An image is a list of layers and a configuration; everything is named by the digest of its content. Layers are plain
tars, not compressed: they are imported on the machine where they are made. Times, owners and order of entries are
fixed, so the same files give the same digests and an unchanged layer costs nothing on import.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NAME_ANNOTATION = "io.containerd.image.name"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
# Container runtimes complete a short name by this before they look it up.
_REGISTRY = "docker.io"
# What the interpreter makes at run time anyway, with times in it.
_LEFT_OUT = "__pycache__"


@dataclass(frozen=True)
class Image:
    """What a container is made of; `name` as pods write it, with a tag."""

    name: str
    layers: Sequence[Path]
    entrypoint: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""

    def full_name(self) -> str:
        """The name as container runtimes keep it."""
        return f"{_REGISTRY}/{self.name}"


@dataclass(frozen=True)
class Blob:
    """A piece of content with its digest and its media type."""

    media_type: str
    digest: str
    size: int

    def descriptor(self, **extra: object) -> dict[str, Any]:
        """How other documents refer to it."""
        return {"mediaType": self.media_type, "digest": f"sha256:{self.digest}", "size": self.size, **extra}

    @property
    def path(self) -> str:
        """Where it is in the layout."""
        return f"blobs/sha256/{self.digest}"


def blob_of_file(path: Path) -> Blob:
    """The blob of a layer."""
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return Blob(media_type=_LAYER_TYPE, digest=digest, size=path.stat().st_size)


def blob_of_document(media_type: str, document: object) -> tuple[Blob, bytes]:
    """The blob of a JSON document, and its content."""
    content = json.dumps(document, sort_keys=True).encode()
    return Blob(media_type=media_type, digest=hashlib.sha256(content).hexdigest(), size=len(content)), content


def configuration(image: Image, layers: Sequence[Blob]) -> dict[str, Any]:
    """The image's configuration document."""
    return {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": list(image.entrypoint),
            "Env": [f"{name}={value}" for name, value in image.env.items()],
            "User": image.user,
        },
        # A layer that is not compressed has the digest of its content.
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
    }


def manifest(config: Blob, layers: Sequence[Blob]) -> dict[str, Any]:
    """The document that names an image's parts."""
    return {
        "schemaVersion": 2,
        "mediaType": _MANIFEST_TYPE,
        "config": config.descriptor(),
        "layers": [layer.descriptor() for layer in layers],
    }


def write_image(image: Image, archive: Path) -> Path:
    """Write an image as an OCI layout in a tar file; it appears complete or not at all."""
    layers = [blob_of_file(layer) for layer in image.layers]
    config, config_content = blob_of_document(_CONFIG_TYPE, configuration(image, layers))
    root, root_content = blob_of_document(_MANIFEST_TYPE, manifest(config, layers))
    named = root.descriptor(annotations={_NAME_ANNOTATION: image.full_name()})
    index = {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": [named]}
    scratch = archive.with_name(f"{archive.name}.part")
    with tarfile.open(scratch, "w") as output:
        _add_bytes(output, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add_bytes(output, "index.json", json.dumps(index, sort_keys=True).encode())
        _add_bytes(output, root.path, root_content)
        _add_bytes(output, config.path, config_content)
        for blob, layer in zip(layers, image.layers, strict=True):
            _add_file(output, tarfile.TarInfo(blob.path), layer)
    scratch.replace(archive)
    return archive


def archived_image(archive: Path) -> tuple[str, str] | None:
    """The full name and the digest of the one image in an archive; None for another kind of archive."""
    with tarfile.open(archive) as content:
        if "index.json" not in content.getnames():
            return None
        index = content.extractfile("index.json")
        assert index is not None
        entries = json.load(index)["manifests"]
    name = entries[0].get("annotations", {}).get(_NAME_ANNOTATION) if len(entries) == 1 else None
    return (name, entries[0]["digest"]) if name else None


def write_layer(contents: Mapping[str, Path], layer: Path) -> Path:
    """Write a layer that holds, for each path in the image, a file or a whole directory of this machine."""
    scratch = layer.with_name(f"{layer.name}.part")
    with tarfile.open(scratch, "w", format=tarfile.PAX_FORMAT) as output:
        for target, source in sorted(contents.items()):
            _add_tree(output, target.strip("/"), source)
    scratch.replace(layer)
    return layer


def _add_tree(output: tarfile.TarFile, target: str, source: Path) -> None:
    info = tarfile.TarInfo(target)
    info.mode = 0o755 if source.is_dir() or os.access(source, os.X_OK) else 0o644
    if source.is_symlink():
        info.type, info.linkname = tarfile.SYMTYPE, str(source.readlink())
        output.addfile(info)
    elif source.is_dir():
        info.type = tarfile.DIRTYPE
        output.addfile(info)
        for child in sorted(source.iterdir()):
            if child.name != _LEFT_OUT:
                _add_tree(output, f"{target}/{child.name}", child)
    else:
        _add_file(output, info, source)


def _add_bytes(output: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    output.addfile(info, io.BytesIO(content))


def _add_file(output: tarfile.TarFile, info: tarfile.TarInfo, source: Path) -> None:
    with source.open("rb") as content:
        info.size = os.fstat(content.fileno()).st_size
        output.addfile(info, content)


def build_image(
    name: str,
    *,
    archive: Path,
    base: Sequence[Path] = (),
    contents: Mapping[str, Path] | None = None,
    entrypoint: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    user: str = "",
) -> Path:
    """An image of ready layers (`base`) and one more with these files and directories, in a tar file at `archive`."""
    layers = list(base)
    scratch = archive.with_name(f"{archive.name}.layer")
    if contents:
        layers.append(write_layer(contents, scratch))
    try:
        image = Image(name=name, layers=layers, entrypoint=entrypoint, env=env or {}, user=user)
        return write_image(image, archive)
    finally:
        scratch.unlink(missing_ok=True)
