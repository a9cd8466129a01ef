"""Reads serialized Values with Python's protobuf, and writes one.

Usage: read_values.py GENERATED FOLDER

Prints a line for each FOLDER/N.value, in order: of a tensor the element type's
name, the shape and the elements in hexadecimal; of anything else its JSON. Then
writes FOLDER/python.value: a tensor of Python's making.
"""

import os
import struct
import sys

sys.path.insert(0, sys.argv[1])

from google.protobuf import json_format  # noqa: E402
from proto import tensor_pb2, value_pb2  # noqa: E402


def describe(value):
    if value.WhichOneof("kind") != "tensor":
        return json_format.MessageToJson(value, indent=None)
    tensor = value.tensor
    return "{} {} {}".format(
        tensor_pb2.DType.Name(tensor.dtype),
        "x".join(str(size) for size in tensor.shape),
        tensor.data.hex(),
    )


def main():
    folder = sys.argv[2]
    number = 0
    while os.path.exists(f"{folder}/{number}.value"):
        value = value_pb2.Value()
        with open(f"{folder}/{number}.value", "rb") as file:
            value.ParseFromString(file.read())
        print(describe(value))
        number += 1
    value = value_pb2.Value()
    value.tensor.dtype = tensor_pb2.DTYPE_FLOAT64
    value.tensor.shape.extend([3, 1])
    value.tensor.data = struct.pack("<3d", 1.5, -2.0, 1e300)
    with open(f"{folder}/python.value", "wb") as file:
        file.write(value.SerializeToString())


main()
