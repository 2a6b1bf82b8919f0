"""Compile a model on a running `ingot up`, then infer through Triton's own client.

python examples/serve_with_triton.py MODEL.onnx INPUT 1x3x48x192
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

import ingot
from ingot.home import Addresses, home_directory


def main(path: str, name: str, shape: str) -> None:
    addresses, model = Addresses.find(home_directory()), Path(path).stem.replace("_", "-")
    with ingot.Client(addresses.compiler) as client:
        job = client.wait(client.compile(path, model, labels=["stable"]).id)
    if job.error is not None:
        sys.exit(str(job.error))

    server = triton.InferenceServerClient(addresses.grpc)
    wait_ready(server, model)
    array = np.random.default_rng(0).standard_normal([int(extent) for extent in shape.split("x")]).astype(np.float32)
    tensor = triton.InferInput(name, list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    answer = server.infer(model, [tensor])
    for output in answer.get_response().outputs:
        print(output.name, answer.as_numpy(output.name))


def wait_ready(server: triton.InferenceServerClient, model: str, seconds: float = 30.0) -> None:
    """The runtime service looks at the store every half second."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if server.is_model_ready(model):
                return
        except InferenceServerException:
            pass  # it does not know the model yet
        time.sleep(0.1)
    sys.exit(f"{model} was not served within {seconds:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
