"""Ends as it is told to, and prints what a program sees of how it was started."""

import atexit
import multiprocessing
import os
import pickle
import sys

print(sys.argv[1:], os.path.basename(sys.argv[0]), __name__, os.path.basename(__file__), sys.path[0] in __file__)
print(__spec__ is None, __doc__[:4], sys.modules["__main__"].__dict__ is globals())


class Config:
    rate = 0.1


class Stop(Exception):
    pass


def child(queue):
    import torch

    weight = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(weight.parameters(), lr=Config.rate)
    weight(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    queue.put(weight.weight.shape)


def train(how):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=Config.rate)
    for step in range(2):
        loss = model(torch.randn(3, 4)).square().mean()
        if how == "raises" and step == 1:
            raise Stop("a bad batch")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item().hex())


if __name__ == "__main__":
    atexit.register(print, "at exit")
    print(type(pickle.loads(pickle.dumps(Config()))) is Config)
    how = sys.argv[1]
    if how in ("trains", "raises", "exits"):
        train(how)
    if how == "spawns":
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(queue.get())
        process.join()
        train("trains" if len(sys.argv) > 2 else "")
    if how == "never":
        import torch

        torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
    if how == "exits":
        sys.exit(3)
    if how == "says":
        sys.exit("it was not to be")
