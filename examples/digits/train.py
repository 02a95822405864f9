"""Train a small network on scikit-learn's digits, so that any node may be lost or added at any moment.

A plain torchrun script: it takes rank, world size and master address from the environment as torchrun sets them, and
knows nothing of Kubernetes. What makes it elastic is three habits.

- The state of training is in a checkpoint after every epoch, and every start resumes from the newest one.
- The work does not depend on the number of nodes: the global batch stays the same and is divided among them.
- Checkpoints are fenced. Each round of the rendezvous writes a file of its own (`ELASTICJOB_ROUND` numbers the rounds
  and never falls) by writing a temporary file and renaming it; whoever finds a newer round's file must not write. So a
  process that was cut off and still runs can neither damage nor overtake the training that went on without it.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GLOBAL_BATCH = 96
LEARNING_RATE = 3e-3
SEED = 20250101
TEST_SHARE = 5  # every fifth image is kept for the test


class FencedError(Exception):
    """A newer round of this run has written a checkpoint: this process belongs to the past."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, one file per round, on storage that all nodes share."""

    directory: Path
    round: int

    def newest(self) -> Path | None:
        """The file of the newest round that wrote one."""
        files = [path for path in self.directory.glob("round-*.pt") if _round_of(path) is not None]
        return max(files, key=lambda path: _round_of(path) or 0, default=None)

    def load(self) -> dict[str, Any] | None:
        """The state to resume from, or None at the very beginning."""
        newest = self.newest()
        if newest is None:
            return None
        state: dict[str, Any] = torch.load(newest, map_location="cpu", weights_only=True)
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Write the state so that readers see the old or the new one, never a part. Raises FencedError."""
        newest = self.newest()
        if newest is not None and (_round_of(newest) or 0) > self.round:
            raise FencedError(f"round {self.round} must not write: {newest.name} is newer")
        with tempfile.NamedTemporaryFile(dir=self.directory, suffix=".part", delete=False) as part:
            torch.save(state, part)
            part.flush()
            os.fsync(part.fileno())
        Path(part.name).replace(self.directory / f"round-{self.round}.pt")
        self._drop_older_rounds()

    def _drop_older_rounds(self) -> None:
        for path in self.directory.glob("round-*.pt"):
            if (_round_of(path) or 0) < self.round:
                path.unlink(missing_ok=True)


def _round_of(path: Path) -> int | None:
    found = re.fullmatch(r"round-(\d+)\.pt", path.name)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class Digits:
    """The data: 8 × 8 grey images of digits as rows of 64 numbers, and the digit of each."""

    train_images: Any
    train_labels: Any
    test_images: Any
    test_labels: Any

    @classmethod
    def load(cls, device: str) -> Digits:
        """All of it fits into memory; nothing is downloaded."""
        images, labels = load_digits(return_X_y=True)
        x = torch.tensor(images, dtype=torch.float32, device=device) / 16.0
        y = torch.tensor(labels, dtype=torch.long, device=device)
        is_test = torch.arange(len(y), device=device) % TEST_SHARE == 0
        return cls(x[~is_test], y[~is_test], x[is_test], y[is_test])


@dataclass(frozen=True)
class Trainer:
    """The model under training and where it stands."""

    model: Any
    optimizer: Any
    digits: Digits
    checkpoints: Checkpoints
    pause: float

    def resume(self) -> int:
        """Take over the newest checkpoint; returns the first epoch to train.

        Only rank 0 reads it and passes it on: were each node to read, two could see different files.
        """
        shared = [self.checkpoints.load() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(shared, src=0)
        state = shared[0]
        if state is None:
            return 0
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return int(state["epoch"]) + 1

    def train_epoch(self, epoch: int) -> float:
        """One pass over this rank's share of the images; returns the mean loss of the share."""
        order = torch.randperm(len(self.digits.train_labels), generator=torch.Generator().manual_seed(SEED + epoch))
        losses: list[float] = []
        for batch in order[: len(order) // GLOBAL_BATCH * GLOBAL_BATCH].split(GLOBAL_BATCH):
            mine = batch[dist.get_rank() :: dist.get_world_size()].to(self.digits.train_labels.device)
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(
                self.model(self.digits.train_images[mine]), self.digits.train_labels[mine]
            )
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
            time.sleep(self.pause)
        return sum(losses) / len(losses)

    def save(self, epoch: int) -> None:
        """Rank 0 writes the checkpoint, since all ranks hold the same state."""
        if dist.get_rank() == 0:
            self.checkpoints.save(
                {
                    "epoch": epoch,
                    "model": self.model.module.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                }
            )

    def accuracy(self) -> float:
        """The share of test images that are read right."""
        with torch.no_grad():
            guesses = self.model.module(self.digits.test_images).argmax(dim=1)
        return float((guesses == self.digits.test_labels).float().mean().item())


def make_trainer(options: argparse.Namespace) -> Trainer:
    """A trainer whose model starts equal on every rank."""
    torch.manual_seed(SEED)
    has_gpu = torch.cuda.is_available()
    device = f"cuda:{os.environ['LOCAL_RANK']}" if has_gpu else "cpu"
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    run = re.sub(r"[^\w-]", "_", os.environ.get("TORCHELASTIC_RUN_ID", "none"))
    directory = options.checkpoints / run
    directory.mkdir(parents=True, exist_ok=True)
    return Trainer(
        model=DistributedDataParallel(network, device_ids=[device] if has_gpu else None),
        optimizer=torch.optim.Adam(network.parameters(), lr=LEARNING_RATE),
        digits=Digits.load(device),
        checkpoints=Checkpoints(directory, int(os.environ.get("ELASTICJOB_ROUND", "0"))),
        pause=options.pause,
    )


def train(trainer: Trainer, *, epochs: int) -> None:
    """Train from where the run stands to the last epoch, and say so."""
    first = trainer.resume()
    where = f"round {trainer.checkpoints.round} rank {dist.get_rank()} world size {dist.get_world_size()}"
    origin = f"resumed from epoch {first - 1}" if first else "from the beginning"
    say(f"{where}: training {origin}")
    for epoch in range(first, epochs):
        loss = trainer.train_epoch(epoch)
        trainer.save(epoch)
        say(f"{where} epoch {epoch} loss {loss:.4f} ({origin})")
    if dist.get_rank() == 0:
        say(f"test accuracy {trainer.accuracy():.4f} after {epochs} epochs")


def say(text: str) -> None:
    """Print at once, whatever stands behind standard output."""
    print(text, flush=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a small network on scikit-learn's digits")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="shared directory")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        train(make_trainer(options), epochs=options.epochs)
    except FencedError as error:
        say(str(error))
        return 1
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
