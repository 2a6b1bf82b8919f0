"""The descriptor pool of our stubs. See ``proto/generate.py`` for why it is not the default one."""

from __future__ import annotations

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
POOL.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
