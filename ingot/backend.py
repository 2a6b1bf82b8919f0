"""Ingot as an ``onnx.backend.base.Backend``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from ingot.compiling import compile as compile_model
from ingot.endpoint import Array
from ingot.model import load
from shared_ir.errors import ErrorCode, IngotError

__all__ = ("IngotBackend", "IngotModel", "prepare", "run_model", "run_node", "supports_device")


class IngotModel(BackendRep):  # type: ignore[misc]
    """A model that was prepared."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def run(self, inputs: Any, **options: Any) -> tuple[Array, ...]:
        """Outputs in the order of the graph, for one array per input that has no default in the order of the graph, or by name.

        Raises:
            IngotError: INVALID_ARGUMENT, the inputs do not fit the model.
        """
        required = [spec.name for spec in self._model.inputs if not spec.is_optional]
        return tuple(self._model.run(_feeds(required, inputs)).values())


class IngotBackend(Backend):  # type: ignore[misc]
    """Compiles in this process; what cannot be compiled is refused with an :class:`IngotError`, never run otherwise."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether it is a CPU, as ``onnx.backend.base.Device`` reads the text."""
        return bool(Device(device).type == DeviceType.CPU)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> IngotModel:
        """Compile ``model``; ``options`` are those of :func:`ingot.compile`, and ``threads``.

        Raises:
            IngotError: INVALID_ARGUMENT, ``device`` is no CPU; whatever :func:`ingot.compile` raises.
        """
        cls._check_device(device)
        threads = options.pop("threads", 1)
        return IngotModel(load(compile_model(model, **{"workers": 0, **options}), threads=threads))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Array, ...]:
        """Compile and run once: :meth:`prepare`, then :meth:`IngotModel.run`."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Array, ...]:
        """Compile and run one operator; ``opset_version`` is by default the newest."""
        opset = options.pop("opset_version", onnx.defs.onnx_opset_version())
        feeds = _feeds([name for name in node.input if name], inputs)
        given = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        wanted = [onnx.ValueInfoProto(name=name) for name in node.output if name]  # their types are inferred
        graph = onnx.helper.make_graph([node], "node", given, wanted)
        imports = [onnx.helper.make_opsetid(node.domain, opset)]
        model = onnx.helper.make_model(graph, opset_imports=imports)
        return cls.prepare(model, device, **options).run(feeds)

    @classmethod
    def _check_device(cls, device: str) -> None:
        if not cls.supports_device(device):
            raise IngotError(
                ErrorCode.INVALID_ARGUMENT, "there is no such device", field="device", expected="CPU", received=device
            )


def _feeds(names: Sequence[str], inputs: Any) -> Mapping[str, Array]:
    if isinstance(inputs, Mapping):
        return inputs
    arrays = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if len(arrays) != len(names):
        raise IngotError(
            ErrorCode.INVALID_ARGUMENT,
            "the number of inputs is not that of the model",
            expected=f"{len(names)}: {', '.join(names)}",
            received=str(len(arrays)),
        )
    return dict(zip(names, arrays, strict=True))


prepare = IngotBackend.prepare
"""As a function of the module, which is what onnx calls a backend."""
run_model = IngotBackend.run_model
"""The same."""
run_node = IngotBackend.run_node
"""The same."""
supports_device = IngotBackend.supports_device
"""The same."""
