"""What a daemon of an older version would not do without saying so."""

from __future__ import annotations

import logging
from typing import Any

import grpc

from .v1 import audit_pb2, query_pb2

log = logging.getLogger("plumbline")
TIMEOUT_S = 5.0


def tell(channel: grpc.Channel, metadata: Any, request: audit_pb2.OpenJobRequest, address: str) -> None:
    """Logs what of the request the daemon does not know. It is asked only where that could be."""
    if not request.ranks_here:
        return
    try:
        call = channel.unary_unary(
            "/plumbline.v1.VerdictService/GetServerInfo",
            request_serializer=query_pb2.GetServerInfoRequest.SerializeToString,
            response_deserializer=query_pb2.ServerInfo.FromString,
        )
        info = call(query_pb2.GetServerInfoRequest(), timeout=TIMEOUT_S, metadata=metadata)
    except grpc.RpcError:
        return  # Who refuses this may audit all the same.
    if all(limit.name != "ranks_here_max" for limit in info.limits):
        log.warning(
            "plumbline: the daemon at %s (version %s) may not know runs on several nodes (ranks_here): such a one waits"
            " for the ranks of other nodes, and then refuses the steps. Upgrade it, or give ranks=1",
            address,
            info.version,
        )
