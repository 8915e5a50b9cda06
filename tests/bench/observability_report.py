"""The report `observability`: the dashboard, the alerts and a job's first TYPE_II, against a real Prometheus."""

import math
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "service"), str(ROOT / "client" / "python")]


def measure() -> tuple[str, dict]:
    from observability import AWAY, Load, Prometheus, panels, put_in, rules, rules_tested
    from query_support import metrics_address, send, type_ii
    from stream_client import Client
    from stream_daemon import DaemonProcess

    daemon = DaemonProcess("--metrics-listen=127.0.0.1:0", "--memory-limit=64MiB", *AWAY)
    load = Load(daemon)
    rows, with_data = [], 0
    try:
        with tempfile.TemporaryDirectory(prefix="prometheus.") as directory:
            prometheus = Prometheus(metrics_address(daemon), Path(directory))
            try:
                prometheus.wait_for_rates()
                for panel in panels():
                    values = [
                        float(series["value"][1])
                        for target in panel["targets"]
                        for series in prometheus.ask(put_in(target["expr"]))
                    ]
                    finds = any(math.isfinite(value) for value in values)
                    with_data += finds
                    rows.append(f"{panel['title']:<50} {'data' if finds else 'NOTHING'}")
                client = Client(daemon.address)
                stream = client.stream(job="one-step")
                send(stream, type_ii(0))
                stream.close()
                client.close()
                firing = 'ALERTS{alertname="PlumblineTypeII",alertstate="firing",job="one-step"}'
                try:
                    first = bool(prometheus.wait_for(firing))
                except AssertionError:
                    first = False
            finally:
                prometheus.close()
    finally:
        load.stop()
        daemon.close()
    tested = rules_tested()
    rows += [f"{rule:<50} {'tested' if rule in tested else 'NOT TESTED'}" for rule in rules()]
    figures = {
        "panels": len(panels()),
        "panels_with_data": with_data,
        "rules": len(rules()),
        "rules_tested": len(tested),
        "first_type_ii_alerts": first,
    }
    return "\n".join(rows), figures
