"""The daemon's google.rpc.Status as the errors that reach the user."""

from __future__ import annotations

from typing import Any

import grpc

from .errors import PlumblineError


def retry_delay(status: Any) -> float | None:
    """Seconds after which the daemon wants to be asked again; None: its answer is final."""
    from google.rpc import error_details_pb2

    info = error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
            return float(info.retry_delay.ToTimedelta().total_seconds())
    return None


def from_status(status: Any) -> PlumblineError:
    """The daemon's google.rpc.Status, its field violations included."""
    from google.rpc import error_details_pb2

    fields: list[tuple[str, str]] = []
    for detail in status.details:
        bad = error_details_pb2.BadRequest()
        if detail.Is(bad.DESCRIPTOR) and detail.Unpack(bad):
            fields.extend((violation.field, violation.description) for violation in bad.field_violations)
    codes = {code.value[0]: code.name for code in grpc.StatusCode}
    text = status.message
    for name, description in fields:
        if description not in text:
            text += f"; {name}: {description}"
    return PlumblineError(text, codes.get(status.code, str(status.code)), tuple(fields))


def from_rpc_error(error: Any) -> PlumblineError:
    from google.rpc import status_pb2

    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return from_status(status_pb2.Status.FromString(value))
    return PlumblineError(error.details() or error.code().name, error.code().name)
