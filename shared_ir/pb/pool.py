"""The descriptor pool of our stubs. See ``proto/generate.py`` for why it is not the default one."""

from __future__ import annotations

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
POOL.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)


def add_default_files(file: FileDescriptor) -> None:
    """Make a file of the default pool known here too, so that server reflection shows all services from one pool."""
    try:
        POOL.FindFileByName(file.name)
    except KeyError:
        for dependency in file.dependencies:
            add_default_files(dependency)
        POOL.AddSerializedFile(file.serialized_pb)
