"""The manifests of Kubernetes: against the published schemas, and against the daemon and the image that they start."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from observability import rules
from operator_schemas import SCHEMAS
from query_support import metrics_address
from stream_daemon import ROOT, DaemonProcess, binary

from plumbline.version import VERSION

FOLDER = ROOT / "deploy/kubernetes"
# The newest that the package of schemas has, and one whose clusters are old.
VERSIONS = (kubernetes_validate.latest_version(), "1.25")
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30, "MiB": 1 << 20, "GiB": 1 << 30}


def manifests(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """By kind, what the folder's kustomization holds; it names every file that is no kustomization."""
    named = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert sorted(named) == sorted(path.name for path in folder.glob("*.yaml") if path.name != "kustomization.yaml")
    found = {}
    for name in named:
        for document in yaml.safe_load_all((folder / name).read_text()):
            assert document["kind"] not in found, "test each of them"
            found[document["kind"]] = document
    return found


def pod() -> dict[str, Any]:
    return manifests()["DaemonSet"]["spec"]["template"]["spec"]


def daemon_container() -> dict[str, Any]:
    (container,) = pod()["containers"]
    return container


def size(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]+)", text).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


def argument(name: str) -> str:
    (value,) = (given.partition("=")[2] for given in daemon_container()["args"] if given.startswith(f"--{name}="))
    return str(value)


def validate(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_they_fit_the_published_schemas(version: str) -> None:
    found = manifests()
    assert sorted(found) == ["DaemonSet", "Namespace", "NetworkPolicy", "ServiceAccount"]
    for document in (*found.values(), yaml.safe_load((FOLDER / "example/job.yaml").read_text())):
        validate(document, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("folder", "port"), [("history", 5432), ("stream", 4222)])
def test_what_verdicts_are_sent_to_opens_its_own_way_out_alone(version: str, folder: str, port: int) -> None:
    (added,) = manifests(FOLDER / folder).values()
    validate(added, version)
    closed = manifests()["NetworkPolicy"]
    assert closed["spec"]["egress"] == [] and added["metadata"]["name"] != closed["metadata"]["name"]
    assert added["spec"]["podSelector"] == closed["spec"]["podSelector"]
    assert added["spec"]["policyTypes"] == ["Egress"] and "ingress" not in added["spec"]
    opened = {(port["protocol"], port["port"]) for way in added["spec"]["egress"] for port in way["ports"]}
    assert opened == {("TCP", port), ("UDP", 53), ("TCP", 53)}
    assert all(way["to"] for way in added["spec"]["egress"]), "no way without a destination, which would be any"


def test_the_example_finds_the_socket() -> None:
    spec = yaml.safe_load((FOLDER / "example/job.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    address = {given["name"]: given["value"] for given in container["env"]}["PLUMBLINE_SERVER"]
    socket = argument("listen").removeprefix("unix:")
    assert address == f"unix://{socket}" and argument("socket-mode") == "0666"
    (mount,) = container["volumeMounts"]
    (volume,) = spec["volumes"]
    assert mount["name"] == volume["name"] and mount["mountPath"] == str(Path(socket).parent)
    (ours,) = (each["hostPath"]["path"] for each in pod()["volumes"] if each["name"] == "socket")
    assert volume["hostPath"]["path"] == ours
    assert spec["securityContext"]["runAsNonRoot"]


def wrong(change: Callable[[Any], None]) -> dict[str, Any]:
    document = copy.deepcopy(manifests()["DaemonSet"])
    change(document["spec"]["template"]["spec"])
    return document


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec["containers"][0].pop("name"),
        lambda spec: spec["containers"][0].update(readyProbe={}),
        lambda spec: spec["containers"][0]["ports"][0].update(containerPort="metrics"),
        lambda spec: spec["securityContext"].update(runAsUser="plumbline"),
    ],
)
def test_what_does_not_fit_is_found(change: Callable[[Any], None]) -> None:
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(wrong(change), VERSIONS[0])


def operator_resources() -> Iterator[dict[str, Any]]:
    yield from manifests(FOLDER / "monitoring").values()
    made = subprocess.run(
        ["jsonnet", FOLDER / "monitoring/prometheusrule.jsonnet"], check=True, capture_output=True, text=True
    )
    yield json.loads(made.stdout)


def test_the_operator_takes_its_resources() -> None:
    found = {document["kind"]: document for document in operator_resources()}
    assert sorted(found) == sorted(SCHEMAS)
    for kind, document in found.items():
        jsonschema.validate(document, SCHEMAS[kind])
        unknown = {**document, "spec": {**document["spec"], "endpoints": []}}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(unknown, SCHEMAS[kind])
    given = [rule["alert"] for group in found["PrometheusRule"]["spec"]["groups"] for rule in group["rules"]]
    assert given == rules()
    monitor = found["PodMonitor"]["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in daemon_container()["ports"]]
    labels = manifests()["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    for selected in (monitor, manifests()["DaemonSet"]["spec"]):
        assert selected["selector"]["matchLabels"].items() <= labels.items()
    policy = manifests()["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [endpoint["port"]]


def test_pods_have_no_more_rights_than_they_need() -> None:
    spec = pod()
    account = manifests()["ServiceAccount"]
    assert spec["serviceAccountName"] == account["metadata"]["name"]
    assert not spec["automountServiceAccountToken"] and not account["automountServiceAccountToken"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & spec.keys()
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*spec["initContainers"], *spec["containers"]):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
        assert context["capabilities"]["drop"] == ["ALL"] and not context.get("privileged")
        assert container["resources"]["requests"].keys() == container["resources"]["limits"].keys() == {"cpu", "memory"}
    (folders,) = spec["initContainers"]  # The one that is root.
    assert folders["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    assert folders["command"][0] == "chown"
    assert not {"runAsUser", "runAsNonRoot"} & daemon_container()["securityContext"].keys()


def test_folders_are_mounted_and_given_to_the_user_of_the_image() -> None:
    spec, container = pod(), daemon_container()
    context = spec["securityContext"]
    image = (ROOT / "deploy/Containerfile").read_text()
    user = re.findall(r"^USER (\S+)$", image, re.M)
    assert user == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert f"--uid {context['runAsUser']} " in image and f"--gid {context['runAsGroup']} " in image
    (folders,) = spec["initContainers"]
    assert folders["command"][1] == user[0]
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    kept = [volume["name"] for volume in spec["volumes"] if "hostPath" in volume]
    assert set(folders["command"][2:]) == {path for path, name in mounted.items() if name in kept}
    assert {mount["mountPath"] for mount in folders["volumeMounts"]} == set(folders["command"][2:])
    assert sorted(mounted.values()) == sorted(volume["name"] for volume in spec["volumes"])
    assert argument("data-dir") in mounted
    assert str(Path(argument("listen").removeprefix("unix:")).parent) in mounted
    assert set(json.loads(re.findall(r"^VOLUME (.*)$", image, re.M)[0])) == set(folders["command"][2:])
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    (replaced,) = kustomization["images"]
    assert {container["image"] for container in (*spec["initContainers"], *spec["containers"])} == {replaced["name"]}
    assert replaced["newTag"] == VERSION
    assert kustomization["namespace"] == manifests()["Namespace"]["metadata"]["name"]


def test_limits_of_the_daemon_lie_within_those_of_its_container() -> None:
    limits = daemon_container()["resources"]["limits"]
    assert size(argument("memory-limit")) <= 0.8 * size(limits["memory"])
    drain = re.search(r"--drain_timeout .*?default: (\d+)s;", help_text(), re.S)
    assert drain and int(drain.group(1)) * 1.1 < pod()["terminationGracePeriodSeconds"]


def help_text() -> str:
    return subprocess.run([binary(), "--help"], capture_output=True, text=True, check=False).stdout


def test_the_daemon_takes_its_flags_and_answers_the_probes() -> None:
    container = daemon_container()
    known = set(re.findall(r"^    --(\w+) \(", help_text(), re.M))
    for given in container["args"]:
        assert given.removeprefix("--").partition("=")[0].replace("-", "_") in known, given
    (port,) = container["ports"]
    assert argument("metrics-listen") == f"0.0.0.0:{port['containerPort']}"
    # The manifest's own flags, but for what is this test's: the folder, and a port that is free.
    ours = ("--listen=", "--data-dir=", "--metrics-listen=")
    flags = [given for given in container["args"] if not given.startswith(ours)]
    daemon = DaemonProcess(*flags, "--metrics-listen=0.0.0.0:0")
    try:
        address = metrics_address(daemon).replace("0.0.0.0", "127.0.0.1")
        paths = set()
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[name]["httpGet"]
            assert asked["port"] == port["name"]
            with urllib.request.urlopen(f"http://{address}{asked['path']}", timeout=10) as answer:
                assert answer.status == 200
            paths.add(asked["path"])
        assert paths == {"/healthz", "/readyz"}
        (endpoint,) = manifests(FOLDER / "monitoring")["PodMonitor"]["spec"]["podMetricsEndpoints"]
        with urllib.request.urlopen(f"http://{address}{endpoint['path']}", timeout=10) as answer:
            assert b"plumbline_" in answer.read()
        daemon.kill()
        daemon.start()  # As the kubelet does: the socket of the one before still lies in the folder.
    finally:
        daemon.close()
