"""The wire contract: what clients of the kept protocol send and read still means the same, and the files keep a style.

`python tests/protocol/test_protocol.py` writes the descriptors that later ones are compared with: run it with every
addition, which is held to the same from then on."""

from __future__ import annotations

import importlib.resources
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, json_format

ROOT = Path(__file__).resolve().parents[2]
LANDED = Path(__file__).parent / "landed.json"
PACKAGE = "plumbline.v1"
Field = descriptor_pb2.FieldDescriptorProto


def compiled() -> descriptor_pb2.FileDescriptorSet:
    """The protocol as it stands in proto/, without comments."""
    from grpc_tools import protoc

    files = sorted(str(path.relative_to(ROOT / "proto")) for path in (ROOT / "proto" / "plumbline").rglob("*.proto"))
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        arguments = [f"-I{ROOT / 'proto'}", f"-I{well_known}", f"--descriptor_set_out={out}", *files]
        assert protoc.main(["protoc", *arguments]) == 0
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def messages(files: descriptor_pb2.FileDescriptorSet) -> dict[str, descriptor_pb2.DescriptorProto]:
    def of(prefix: str, found: list) -> Iterator[tuple[str, descriptor_pb2.DescriptorProto]]:
        for message in found:
            name = f"{prefix}.{message.name}"
            yield name, message
            yield from of(name, message.nested_type)

    return dict(pair for file in files.file for pair in of(file.package, file.message_type))


def enums(files: descriptor_pb2.FileDescriptorSet) -> dict[str, descriptor_pb2.EnumDescriptorProto]:
    found = {f"{file.package}.{enum.name}": enum for file in files.file for enum in file.enum_type}
    for name, message in messages(files).items():
        found |= {f"{name}.{enum.name}": enum for enum in message.enum_type}
    return found


def methods(files: descriptor_pb2.FileDescriptorSet) -> dict[str, descriptor_pb2.MethodDescriptorProto]:
    return {
        f"{file.package}.{service.name}/{method.name}": method
        for file in files.file
        for service in file.service
        for method in service.method
    }


def breaks(old: descriptor_pb2.FileDescriptorSet, new: descriptor_pb2.FileDescriptorSet) -> list[str]:
    """What a client of the old protocol could no longer send or read, a line each."""
    found = []
    for name, message in messages(old).items():
        now = messages(new).get(name)
        if now is None:
            found.append(f"message {name} is gone")
            continue
        fields = {field.number: field for field in now.field}
        reserved = {number for span in now.reserved_range for number in range(span.start, span.end)}
        for field in message.field:
            same = fields.get(field.number)
            if same is None:
                if field.number not in reserved:
                    found.append(f"{name}.{field.name}: number {field.number} is neither used nor reserved")
                continue
            for what in ("name", "type", "type_name", "label", "proto3_optional"):
                if getattr(field, what) != getattr(same, what):
                    was, became = getattr(field, what), getattr(same, what)
                    found.append(f"{name}.{field.name} = {field.number}: {what} was {was}, is {became}")
            if field.HasField("oneof_index") != same.HasField("oneof_index"):
                found.append(f"{name}.{field.name}: it moved into or out of a oneof")
    for name, enum in enums(old).items():
        now = enums(new).get(name)
        values = {value.number: value.name for value in now.value} if now is not None else {}
        found += [
            f"{name}.{value.name} = {value.number} is {values.get(value.number, 'gone')}"
            for value in enum.value
            if values.get(value.number) != value.name
        ]
    for name, method in methods(old).items():
        now = methods(new).get(name)
        if now is None:
            found.append(f"method {name} is gone")
            continue
        for what in ("input_type", "output_type", "client_streaming", "server_streaming"):
            if getattr(method, what) != getattr(now, what):
                found.append(f"{name}: {what} was {getattr(method, what)}, is {getattr(now, what)}")
    return found


def test_nothing_that_landed_is_broken() -> None:
    landed = json_format.Parse(LANDED.read_text(), descriptor_pb2.FileDescriptorSet())
    assert messages(landed) and methods(landed) and enums(landed)
    assert breaks(landed, compiled()) == []


def _drop_field(files: descriptor_pb2.FileDescriptorSet) -> None:
    del messages(files)["plumbline.v1.Verdict"].field[3]


def _renumber_field(files: descriptor_pb2.FileDescriptorSet) -> None:
    messages(files)["plumbline.v1.Filter"].field[0].number = 99


def _retype_field(files: descriptor_pb2.FileDescriptorSet) -> None:
    messages(files)["plumbline.v1.Filter"].field[0].type = Field.TYPE_BYTES


def _drop_message(files: descriptor_pb2.FileDescriptorSet) -> None:
    del files.file[0].message_type[0]


def _rename_value(files: descriptor_pb2.FileDescriptorSet) -> None:
    enums(files)["plumbline.v1.Outcome"].value[1].name = "OTHER"


def _drop_method(files: descriptor_pb2.FileDescriptorSet) -> None:
    service = next(service for file in files.file for service in file.service)
    del service.method[0]


def _unstream_method(files: descriptor_pb2.FileDescriptorSet) -> None:
    methods(files)["plumbline.v1.AuditService/Audit"].client_streaming = False


@pytest.mark.parametrize(
    "change",
    [_drop_field, _renumber_field, _retype_field, _drop_message, _rename_value, _drop_method, _unstream_method],
)
def test_a_break_is_seen(change) -> None:
    old, new = compiled(), compiled()
    assert breaks(old, new) == []
    change(new)
    assert breaks(old, new)


def test_the_files_keep_one_style() -> None:
    files = compiled()
    wrong = [file.name for file in files.file if file.package != PACKAGE or file.syntax != "proto3"]
    camel, snake, upper = (
        re.compile(r"([A-Z][a-z0-9]*)+"),
        re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*"),
        re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*"),
    )
    for name, message in messages(files).items():
        wrong += [name] if not camel.fullmatch(message.name) else []
        wrong += [f"{name}.{field.name}" for field in message.field if not snake.fullmatch(field.name)]
        wrong += [f"{name}.{oneof.name}" for oneof in message.oneof_decl if not snake.fullmatch(oneof.name.lstrip("_"))]
    for name, enum in enums(files).items():
        wrong += [f"{name}.{value.name}" for value in enum.value if not upper.fullmatch(value.name)]
        prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum.name).upper() + "_"
        if (enum.value[0].number, enum.value[0].name) != (0, f"{prefix}UNSPECIFIED"):
            wrong.append(f"{name}: its first value is not {prefix}UNSPECIFIED = 0")
        if name == f"{PACKAGE}.{enum.name}":  # Within a message, the message's name tells values apart.
            wrong += [f"{name}.{value.name}" for value in enum.value if not value.name.startswith(prefix)]
    for name in methods(files):
        service, method = name.rsplit(".", 1)[1].split("/")
        wrong += [name] if not (service.endswith("Service") and camel.fullmatch(method)) else []
    assert wrong == []


def test_every_list_is_paged() -> None:
    files = compiled()
    by_name = messages(files)
    lists = {name: method for name, method in methods(files).items() if name.split("/")[1].startswith("List")}
    assert len(lists) >= 5
    for name, method in lists.items():
        asked = {field.name for field in by_name[method.input_type.lstrip(".")].field}
        answered = {field.name for field in by_name[method.output_type.lstrip(".")].field}
        assert {"page_size", "page_token"} <= asked and "next_page_token" in answered, name


if __name__ == "__main__":
    LANDED.write_text(json_format.MessageToJson(compiled(), indent=1) + "\n")
