"""What the Prometheus operator takes, as far as our manifests go: written by hand from its API reference
(https://prometheus-operator.dev/docs/api-reference/api/, monitoring.coreos.com/v1), as no package of Python brings the
schemas of its custom resources. Fields of that reference that we have no use for are left out, and so refused."""

from __future__ import annotations

from typing import Any

STRING = {"type": "string"}
STRINGS = {"type": "object", "additionalProperties": STRING}
# Duration: a number and a unit, or several from the largest unit down.
DURATION = {
    "type": "string",
    "pattern": r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
    "minLength": 1,
}
LABEL = {"type": "string", "pattern": r"^[a-zA-Z_][a-zA-Z0-9_]*$"}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


_METADATA = _object(["name"], name=STRING, namespace=STRING, labels=STRINGS, annotations=STRINGS)
_RELABEL = _object(
    [],
    sourceLabels=_list(LABEL),
    separator=STRING,
    targetLabel=STRING,
    regex=STRING,
    modulus={"type": "integer"},
    replacement=STRING,
    action={"enum": ["replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase"]},
)
_ENDPOINT = _object(
    [],
    port=STRING,  # The name of a container's port.
    path=STRING,
    scheme={"enum": ["http", "https"]},
    interval=DURATION,
    scrapeTimeout=DURATION,
    honorLabels={"type": "boolean"},
    honorTimestamps={"type": "boolean"},
    relabelings=_list(_RELABEL),
    metricRelabelings=_list(_RELABEL),
)
_RULE = _object(["expr"], alert=STRING, record=STRING, expr=STRING, labels=STRINGS, annotations=STRINGS)
_RULE["properties"]["for"] = DURATION
_RULE["properties"]["keep_firing_for"] = DURATION
_RULE["oneOf"] = [{"required": ["alert"]}, {"required": ["record"]}]

_VERSION = {"const": "monitoring.coreos.com/v1"}
SCHEMAS = {
    "PodMonitor": _object(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion=_VERSION,
        kind={"const": "PodMonitor"},
        metadata=_METADATA,
        spec=_object(
            ["selector", "podMetricsEndpoints"],
            selector=_object([], matchLabels=STRINGS),
            namespaceSelector=_object([], any={"type": "boolean"}, matchNames=_list(STRING)),
            podMetricsEndpoints=_list(_ENDPOINT),
        ),
    ),
    "PrometheusRule": _object(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion=_VERSION,
        kind={"const": "PrometheusRule"},
        metadata=_METADATA,
        spec=_object([], groups=_list(_object(["name"], name=STRING, interval=DURATION, rules=_list(_RULE)))),
    ),
}
