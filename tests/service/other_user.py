"""Python as another user of this machine: tests run as root, and give up what that is worth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

NOBODY = 65534

PRELUDE = """
import json, os, sys
sys.path[:0] = {path!r}
import grpc
from stream_client import Client, Stream, StepFrames, frame
from plumbline.v1 import archive_pb2, archive_pb2_grpc, audit_pb2, query_pb2, query_pb2_grpc
from test_shared_memory import SIZE, region, register
{imports}

# Now that all is imported: the other user may not be able to read where it comes from.
os.setgroups({groups!r})
os.setresgid({user}, {user}, {user})
os.setresuid({user}, {user}, {user})
client = Client({address!r})
verdicts = query_pb2_grpc.VerdictServiceStub(client.channel)
archive = archive_pb2_grpc.ArchiveServiceStub(client.channel)

def code(call):
    '''The status that a call, or the stream of answers that it returns, ends with.'''
    try:
        answer = call()
        if hasattr(answer, "__next__"):
            list(answer)
        return "OK"
    except grpc.RpcError as error:
        return error.code().name
"""


def as_user(address: str, program: str, user: int = NOBODY, groups: list[int] | None = None, imports: str = "") -> Any:
    """Runs a program, which has `client`, `verdicts`, `archive`, `code` and `imports`, and returns what it assigns to
    `found`."""
    script = (
        PRELUDE.format(path=[*sys.path], address=address, user=user, groups=groups or [], imports=imports)
        + program
        + "\nprint(json.dumps(found))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])
