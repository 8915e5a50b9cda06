"""What a client says of a daemon that is older than it."""

from __future__ import annotations

import logging
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from plumbline import older
from plumbline.v1 import audit_pb2, query_pb2, query_pb2_grpc


class Info(query_pb2_grpc.VerdictServiceServicer):
    def __init__(self, *limits: str) -> None:
        self.limits = limits
        self.asked = 0

    def GetServerInfo(self, request: object, context: object) -> query_pb2.ServerInfo:
        self.asked += 1
        limits = [query_pb2.ServerInfo.Limit(name=name, value=7) for name in self.limits]
        return query_pb2.ServerInfo(version="0.0.9", limits=limits)


def said(info: Info | None, folder: Path, caplog: pytest.LogCaptureFixture, *ranks_here: int) -> str:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    if info is not None:
        query_pb2_grpc.add_VerdictServiceServicer_to_server(info, server)
    address = f"unix:{folder}/d.sock"
    server.add_insecure_port(address)
    server.start()
    caplog.clear()
    with caplog.at_level(logging.INFO, "plumbline"), grpc.insecure_channel(address) as channel:
        older.tell(channel, [], audit_pb2.OpenJobRequest(ranks=4, ranks_here=ranks_here), address)
    server.stop(0).wait()
    return caplog.text


def test_a_daemon_that_would_wait_for_other_nodes_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = Info("ranks_max"), Info("ranks_max", "ranks_here_max")
    text = said(old, tmp_path, caplog, 0, 1)
    assert f"the daemon at unix:{tmp_path}/d.sock (version 0.0.9) may not know runs on several nodes" in text
    assert said(new, tmp_path, caplog, 0, 1) == ""
    assert said(None, tmp_path, caplog, 0, 1) == "", "one that does not answer may know it"
    assert said(old, tmp_path, caplog) == "" and old.asked == 1, "a run on one node asks for nothing"


def test_this_daemon_says_that_it_knows_them(server: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "plumbline"), grpc.insecure_channel(server) as channel:
        older.tell(channel, [], audit_pb2.OpenJobRequest(ranks=4, ranks_here=[0, 1]), server)
    assert caplog.text == ""
