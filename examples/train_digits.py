"""Trains a small network on scikit-learn's handwritten digits and draws what happened.

    python examples/train_digits.py [--epochs 40] [--out out]

1,797 pictures of 8x8 pixels, a quarter of them held out. Prints the held-out accuracy and writes `loss.png`, the loss
of every step, and `graph.svg`, the computation graph of one loss. Needs the extra `rustgrad[example]`.
"""

from __future__ import annotations

import argparse
import pathlib
import time

import matplotlib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from tqdm import tqdm

import rustgrad as torch
from rustgrad import graph, nn
from rustgrad.nn import functional as F

matplotlib.use("Agg")  # before pyplot is imported: pictures go to files, no display is needed
from matplotlib import pyplot as plt


def load(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Standardised training and held-out pictures and their digits."""
    pictures, digits = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        pictures, digits, test_size=0.25, random_state=seed, stratify=digits
    )
    scaler = StandardScaler().fit(x_train)

    def floats(a: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(scaler.transform(a).astype(np.float32))

    def labels(a: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(a.astype(np.int64))

    return floats(x_train), labels(y_train), floats(x_test), labels(y_test)


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean().item())


def train(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int, batch: int, rng: np.random.Generator
) -> list[float]:
    """The loss of every step. The rows that do not fill a batch wait for another epoch's shuffle."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    losses = []
    progress = tqdm(range(epochs), desc="epochs", unit="epoch")
    for _ in progress:
        order = torch.from_numpy(rng.permutation(len(x)))
        for start in range(0, len(x) - batch + 1, batch):
            rows = order[start : start + batch]
            loss = F.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        progress.set_postfix(loss=f"{losses[-1]:.4f}", refresh=False)
    return losses


def draw_losses(losses: list[float], per_epoch: int, path: pathlib.Path) -> None:
    """Every step in grey, the mean of each epoch on top."""
    epochs = np.arange(1, len(losses) + 1) / per_epoch
    means = np.reshape(losses, (-1, per_epoch)).mean(axis=1)
    figure, axes = plt.subplots(figsize=(7, 4), constrained_layout=True)
    axes.plot(epochs, losses, color="#b7c0cc", linewidth=0.8, label="step")
    axes.plot(np.arange(1, len(means) + 1), means, color="#2f6fb7", linewidth=2, label="mean of the epoch")
    axes.set(yscale="log", xlabel="epoch", ylabel="cross entropy", title="Training loss")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    options = parser.parse_args()
    if options.epochs < 1 or options.batch < 1:
        parser.error("--epochs and --batch must be positive")

    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    x_train, y_train, x_test, y_test = load(options.seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

    began = time.perf_counter()
    rng = np.random.default_rng(options.seed)
    losses = train(model, x_train, y_train, options.epochs, options.batch, rng)
    took = time.perf_counter() - began

    draw_losses(losses, len(losses) // options.epochs, options.out / "loss.png")
    loss = F.cross_entropy(model(x_train[: options.batch]), y_train[: options.batch])
    (options.out / "graph.svg").write_text(graph.svg(loss, model.named_parameters()), encoding="utf-8")

    print(f"{len(losses)} steps in {took:.2f} s, loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"held-out accuracy: {accuracy(model, x_test, y_test):.4f} on {len(y_test)} pictures")
    print(f"wrote {options.out / 'loss.png'} and {options.out / 'graph.svg'}")


if __name__ == "__main__":
    main()
