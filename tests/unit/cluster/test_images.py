"""Images: documents refer to each other by digest, and the same files give the same digests."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.image_sets import operator_requirements, tree_digest
from tests.cluster.images import archived_image, build_image, write_layer


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    (top / "package" / "__pycache__").mkdir(parents=True)
    (top / "package" / "__pycache__" / "a.pyc").write_text("compiled")
    (top / "package" / "a.py").write_text("a = 1\n")
    (top / "run").write_text("#!/bin/sh\n")
    (top / "run").chmod(0o700)
    (top / "link").symlink_to("run")
    return top


def documents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as content:
        return {member.name: content.extractfile(member).read() for member in content.getmembers()}  # type: ignore[union-attr]


def test_everything_is_named_by_the_digest_of_its_content(tree: Path, tmp_path: Path) -> None:
    archive = build_image("a/b:1", archive=tmp_path / "i.tar", contents={"/opt/x": tree})
    blobs = {name: content for name, content in documents(archive).items() if name.startswith("blobs/")}
    assert len(blobs) == 3
    assert all(name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}" for name, content in blobs.items())


def test_index_manifest_and_configuration_lead_to_each_other(tree: Path, tmp_path: Path) -> None:
    archive = build_image(
        "a/b:1",
        archive=tmp_path / "i.tar",
        contents={"/opt/x": tree},
        entrypoint=["/opt/x/run"],
        env={"A": "1"},
        user="7:7",
    )
    found = documents(archive)

    def follow(descriptor: dict[str, Any]) -> Any:
        content = found[f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}"]
        assert descriptor["size"] == len(content)
        return json.loads(content)

    (entry,) = json.loads(found["index.json"])["manifests"]
    manifest = follow(entry)
    configuration = follow(manifest["config"])
    assert configuration["config"] == {"Entrypoint": ["/opt/x/run"], "Env": ["A=1"], "User": "7:7"}
    assert configuration["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert archived_image(archive) == ("docker.io/a/b:1", entry["digest"])


def test_the_same_files_give_the_same_image(tree: Path, tmp_path: Path) -> None:
    first = build_image("a/b:1", archive=tmp_path / "1.tar", contents={"x": tree})
    os.utime(tree / "run", (1, 1))
    second = build_image("a/b:1", archive=tmp_path / "2.tar", contents={"x": tree})
    assert archived_image(first) == archived_image(second)
    (tree / "package" / "a.py").write_text("a = 2\n")
    third = build_image("a/b:1", archive=tmp_path / "3.tar", contents={"x": tree})
    assert archived_image(first) != archived_image(third)


def test_a_layer_holds_files_as_root_owns_them(tree: Path, tmp_path: Path) -> None:
    with tarfile.open(write_layer({"/opt/x": tree}, tmp_path / "layer")) as layer:
        members = {member.name: member for member in layer.getmembers()}
    assert sorted(members) == ["opt/x", "opt/x/link", "opt/x/package", "opt/x/package/a.py", "opt/x/run"]
    assert all((member.uid, member.gid, member.mtime) == (0, 0, 0) for member in members.values())
    assert members["opt/x/run"].mode == 0o755
    assert members["opt/x/package/a.py"].mode == 0o644
    assert members["opt/x/link"].linkname == "run"


def test_layers_of_the_base_come_first(tree: Path, tmp_path: Path) -> None:
    base = write_layer({"base": tree}, tmp_path / "base")
    archive = build_image("a/b:1", archive=tmp_path / "i.tar", base=[base], contents={"x": tree})
    manifests = [
        json.loads(text) for text in documents(archive).values() if b"manifest.v1" in text and b"layers" in text
    ]
    digest = hashlib.sha256(base.read_bytes()).hexdigest()
    assert manifests[0]["layers"][0]["digest"] == f"sha256:{digest}"


def test_another_kind_of_archive_has_no_known_content(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as content:
        content.addfile(tarfile.TarInfo("manifest.json"))
    assert archived_image(archive) is None


def test_the_operator_needs_its_extra_and_its_backends() -> None:
    extras = {"operator": ["kopf"], "etcd": ["etcd3gw"], "test": ["pytest"]}
    assert operator_requirements({"project": {"dependencies": ["x"], "optional-dependencies": extras}}) == [
        "x",
        "kopf",
        "etcd3gw",
    ]


def test_a_tree_has_another_digest_when_a_name_or_a_content_changes(tree: Path) -> None:
    digests = [tree_digest(tree)]
    (tree / "package" / "a.py").write_text("a = 2\n")
    digests.append(tree_digest(tree))
    (tree / "package" / "a.py").rename(tree / "package" / "b.py")
    digests.append(tree_digest(tree))
    assert len(set(digests)) == 3
