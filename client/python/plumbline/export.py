"""`python -m plumbline export-verdicts`: a daemon's verdicts as a Parquet file, for those who keep them for years.

client/README.md says what the columns hold. Verdicts are read page by page and written group by group, so that memory
does not grow with their number. Windows of time that follow one another give files without gap or overlap.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from .addresses import one_address
from .credentials import checked
from .errors import PlumblineError
from .names import short_name
from .statuses import from_rpc_error
from .v1 import query_pb2, verdict_pb2
from .version import VERSION

DEFAULT_SERVER = "unix:///run/plumbline.sock"
PAGE_ROWS = 1000  # The daemon gives no more at a time.
GROUP_ROWS = 8 * PAGE_ROWS
PAGE_TIMEOUT_S = 60.0
RESPONSE_BYTES_MAX = 64 << 20
# A verdict is in view a moment after its time: what is exported by default is older.
SETTLED = datetime.timedelta(minutes=1)

TEXT, TEXTS, NUMBER, COUNT, SMALL = "string", "list<string>", "double", "int64", "int32"
# By column: its type, and how a verdict gives it. A number that is not there, or not a number, is null.
COLUMNS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **{name: (TEXT, lambda verdict, name=name: getattr(verdict, name)) for name in ("id", "project", "job", "run")},
    "rank": (SMALL, lambda verdict: verdict.rank),
    "step": (COUNT, lambda verdict: verdict.step),
    "time": ("timestamp", lambda verdict: verdict.time.ToMicroseconds()),
    "verdict": (TEXT, lambda verdict: short_name(verdict_pb2.Outcome, verdict.verdict)),
    "grade": (TEXT, lambda verdict: short_name(verdict_pb2.Grade, verdict.grade)),
    "cause": (TEXT, lambda verdict: short_name(verdict_pb2.Cause, verdict.cause)),
    "surprise": (NUMBER, lambda verdict: verdict.surprise if verdict.HasField("surprise") else None),
    **{
        name: (NUMBER, lambda verdict, name=name: getattr(verdict, name))
        for name in ("deviation", "envelope", "margin", "math_resolution", "exec_resolution", "explained")
    },
    "sentence": (TEXT, lambda verdict: verdict.sentence),
    "deciding_tap": (TEXT, lambda verdict: verdict.deciding_tap),
    **{
        f"suspect_{name}": (TEXT, lambda verdict, name=name: getattr(verdict.suspect, name))
        for name in ("op", "source", "module", "format")
    },
    "suspect_detail": (TEXT, lambda verdict: verdict.suspect_detail),
    "advice": (TEXTS, lambda verdict: list(verdict.advice)),
    "notes": (TEXTS, lambda verdict: list(verdict.notes)),
    "hazards": (TEXTS, lambda verdict: [f"{hazard.kind}: {hazard.sentence}" for hazard in verdict.hazards]),
    **{
        name: (COUNT, lambda verdict, name=name: getattr(verdict.coverage, name))
        for name in ("operations", "audited", "opaque", "elements", "compared")
    },
    "partial": ("bool", lambda verdict: verdict.coverage.partial),
    "reference": (TEXT, lambda verdict: verdict.reference),
    "profile": (TEXT, lambda verdict: verdict.profile),
    "backend": (TEXT, lambda verdict: verdict.backend),
    "audit_seconds": (NUMBER, lambda verdict: verdict.audit_seconds),
    "digest": (TEXT, lambda verdict: verdict.digest),
    "ranks": (SMALL, lambda verdict: verdict.ranks),
    "ranks_of_run": (SMALL, lambda verdict: verdict.ranks_of_run),
    "rank_digests": (TEXTS, lambda verdict: list(verdict.rank_digests)),
    "trace_id": (TEXT, lambda verdict: verdict.trace_id),
}


def parquet() -> tuple[Any, Any]:
    """pyarrow and its Parquet. PlumblineError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise PlumblineError(f"export-verdicts needs pyarrow: pip install 'plumbline[parquet]' ({error})") from None
    return pyarrow, pyarrow.parquet


def schema(pyarrow: Any) -> Any:
    types = {
        TEXT: pyarrow.string(),
        TEXTS: pyarrow.list_(pyarrow.string()),
        NUMBER: pyarrow.float64(),
        COUNT: pyarrow.int64(),
        SMALL: pyarrow.int32(),
        "bool": pyarrow.bool_(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
    }
    metadata = {"plumbline.version": VERSION}
    return pyarrow.schema([(name, types[kind]) for name, (kind, _) in COLUMNS.items()], metadata=metadata)


def columns_of(verdicts: list[verdict_pb2.Verdict]) -> dict[str, list[Any]]:
    """By name, one entry for each verdict."""
    found = {}
    for name, (kind, value) in COLUMNS.items():
        entries = [value(verdict) for verdict in verdicts]
        if kind == NUMBER:
            entries = [None if entry is None or math.isnan(entry) else entry for entry in entries]
        found[name] = entries
    return found


def pages(address: str, query: query_pb2.Filter) -> Iterator[list[verdict_pb2.Verdict]]:
    """The verdicts that match, in the order of their commits. PlumblineError: in the daemon's words, or of gRPC."""
    credentials = checked()
    options = [("grpc.max_receive_message_length", RESPONSE_BYTES_MAX), ("grpc.enable_http_proxy", 0)]
    with credentials.channel(address, options) as channel:
        list_verdicts = channel.unary_unary(
            "/plumbline.v1.VerdictService/ListVerdicts",
            request_serializer=query_pb2.ListVerdictsRequest.SerializeToString,
            response_deserializer=query_pb2.ListVerdictsResponse.FromString,
        )
        token = ""
        while True:
            request = query_pb2.ListVerdictsRequest(filter=query, page_size=PAGE_ROWS, page_token=token)
            try:
                answer = list_verdicts(request, timeout=PAGE_TIMEOUT_S, metadata=credentials.metadata())
            except grpc.RpcError as error:
                raise PlumblineError(f"{address}: {from_rpc_error(error)}") from None
            yield list(answer.verdicts)
            token = answer.next_page_token
            if not token:
                return


def export(address: str, output: Path, query: query_pb2.Filter) -> int:
    """Writes the verdicts that match to a file that is not there yet; how many they were. The file is there, whole,
    only where this returns. PlumblineError: of the daemon, or the file."""
    pyarrow, its_parquet = parquet()
    made = schema(pyarrow)
    _absent(output)
    rows = 0
    with _beside(output) as unfinished, contextlib.ExitStack() as stack:
        try:
            writer = stack.enter_context(its_parquet.ParquetWriter(unfinished, made, compression="zstd"))
            group: list[verdict_pb2.Verdict] = []

            def write() -> None:
                writer.write_table(pyarrow.table(columns_of(group), schema=made))
                group.clear()

            for page in pages(address, query):
                group += page
                rows += len(page)
                if len(group) >= GROUP_ROWS:
                    write()
            if group or not rows:
                write()
            stack.close()  # Writes the end of the file.
            _absent(output)
            os.rename(unfinished, output)
        except OSError as error:
            raise PlumblineError(f"--output: {output} cannot be written: {error.strerror or error}") from None
    return rows


def _absent(output: Path) -> None:
    if output.exists():
        raise PlumblineError(f"--output: {output} is there already, and stays as it is")


@contextlib.contextmanager
def _beside(output: Path) -> Iterator[Path]:
    """A file in the folder of `output`, removed at the end."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{output.name}.", dir=output.parent)
    except OSError as error:
        raise PlumblineError(f"--output: {output} cannot be written: {error.strerror}") from None
    os.fchmod(descriptor, 0o666 & ~_umask())
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def moment(text: str) -> datetime.datetime:
    """A time of ISO 8601, of UTC where it names no zone."""
    try:
        given = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        expected = "expected a time such as 2026-11-24 or 2026-11-24T18:00:00Z"
        raise argparse.ArgumentTypeError(f"{expected}, found {text!r}") from None
    return given if given.tzinfo else given.replace(tzinfo=datetime.timezone.utc)


def parser() -> argparse.ArgumentParser:
    said = argparse.ArgumentParser(
        prog="python -m plumbline export-verdicts",
        description="Writes a daemon's verdicts to a Parquet file.",
        epilog="Tokens and TLS are those of PLUMBLINE_TOKEN_FILE, PLUMBLINE_TLS_CA and so on, as for watch().",
        allow_abbrev=False,
    )
    said.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="must not be there yet")
    said.add_argument("--server", metavar="ADDRESS", help="the daemon's (default: $PLUMBLINE_SERVER)")
    said.add_argument("--project", default="", metavar="NAME", help="default: all that the caller may see")
    said.add_argument("--job", default="", metavar="NAME")
    said.add_argument("--run", default="", metavar="NAME")
    said.add_argument("--after", type=moment, metavar="TIME", help="verdicts of this time and later (default: all)")
    said.add_argument("--before", type=moment, metavar="TIME", help="earlier ones (default: those a minute old)")
    return said


def main(arguments: list[str]) -> int:
    said = parser()
    given = said.parse_args(arguments)
    before = given.before or datetime.datetime.now(datetime.timezone.utc) - SETTLED
    if given.after and given.after >= before:
        said.error(f"--after: expected a time before {before.isoformat()}, found {given.after.isoformat()}")
    query = query_pb2.Filter(project=given.project, job=given.job, run=given.run)
    query.time_max.FromDatetime(before.astimezone(datetime.timezone.utc))
    if given.after:
        query.time_min.FromDatetime(given.after.astimezone(datetime.timezone.utc))
    try:
        server = given.server or os.environ.get("PLUMBLINE_SERVER") or DEFAULT_SERVER
        server = one_address(server, "each daemon has a history of its own")
        rows = export(server, given.output, query)
    except PlumblineError as error:
        print(f"export-verdicts: {error}", file=sys.stderr)
        return 1
    print(f"{given.output}: {rows} verdicts; what comes later: --after {before.isoformat()}")
    return 0
