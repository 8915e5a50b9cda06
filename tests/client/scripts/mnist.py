"""Images, as PyTorch's examples train on them: functions train() and test(), batches from worker processes."""

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"  # Read when PyTorch is loaded.

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.25)
        self.fc = nn.Linear(4 * 36, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        return F.log_softmax(self.fc(self.dropout(torch.flatten(x, 1))), dim=1)


def train(model, loader, optimizer, epoch):
    model.train()
    for number, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        print(epoch, number, loss.item().hex())


def test(model, loader, evaluate):
    if evaluate:
        model.eval()
    with torch.no_grad():
        print("test", sum(F.nll_loss(model(data), target).item() for data, target in loader).hex())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--tests-in-training-mode", action="store_true", help="a bug: test() moves the statistics")
    args = parser.parse_args()
    torch.manual_seed(1)
    print(torch.get_num_threads())
    data = TensorDataset(torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,)))
    loader = DataLoader(data, 8, shuffle=True, num_workers=args.workers)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(args.epochs):
        train(model, loader, optimizer, epoch)
        test(model, loader, not args.tests_in_training_mode)
        scheduler.step()


if __name__ == "__main__":
    main()
