"""Opens a model of a checkpoint with PyTorch.

Usage: open_model.py FILE

FILE is of a Sequential of Linear(3, 5), BatchNorm1d(5), Dropout and
Linear(5, 2), in float64. Prints a line for each of its parameters and buffers:
name, element type, shape and the elements in hexadecimal; then what such a
model of Python's, with these values, makes of the rows (0, 1, 2) and (3, 4, 5).
"""

import sys
import warnings

import torch


def describe(name, tensor):
    return "{} {} {} {}".format(
        name,
        str(tensor.dtype).replace("torch.", ""),
        "x".join(str(size) for size in tensor.shape),
        tensor.detach().numpy().tobytes().hex(),
    )


def main():
    model = torch.jit.load(sys.argv[1])
    state = model.state_dict()
    for name, tensor in state.items():
        print(describe(name, tensor))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It says that torch.jit.load does it.
        other = torch.load(sys.argv[1]).state_dict()
    assert list(other) == list(state)
    assert all(torch.equal(other[name], state[name]) for name in state)

    net = torch.nn.Sequential(
        torch.nn.Linear(3, 5),
        torch.nn.BatchNorm1d(5),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(5, 2),
    ).double()
    net.load_state_dict(state)
    net.eval()
    x = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    print(describe("output", net(x)))


main()
