"""F73: the manifests are valid, refer to what they contain, and agree with the settings."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cronledger.settings import VARIABLES, Settings
from cronledger.sources.toml import load
from tests.deploy.support.files import DEPLOY, ROOT, check, parsed

DIRECTORY = DEPLOY / "kubernetes"
OVERLAY = DIRECTORY / "overlays" / "production"
VERSION = "1.31"
COMPONENT = "app.kubernetes.io/component"
CUSTOM = {"PodMonitor"}
"""The kinds that Kubernetes itself does not define."""
GRACE = 15
"""The seconds beyond `drain_timeout` of docs/howto/deploy.md."""

Manifest = dict[str, Any]


def knows_labels() -> bool:
    """Return whether there is a kubectl whose Kustomize knows the field `labels`."""
    if shutil.which("kubectl") is None:
        return False
    found = json.loads(check("kubectl", "version", "--client", "--output=json"))["clientVersion"]
    return (int(found["major"]), int(found["minor"].rstrip("+"))) >= (1, 27)


needs_kubectl = pytest.mark.skipif(
    not knows_labels(), reason="there is no kubectl >= 1.27: on Debian 13, kubernetes-client"
)


def sources() -> list[Manifest]:
    paths = sorted(path for path in DIRECTORY.rglob("*.yaml") if path.name != "kustomization.yaml")
    return [one for path in paths for one in yaml.safe_load_all(path.read_text("utf-8"))]


def pods(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    for one in manifests:
        if one["kind"] in ("Deployment", "Job"):
            yield one, one["spec"]["template"]


def name(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


@pytest.fixture(scope="module")
def rendered() -> list[Manifest]:
    """The manifests that `kubectl apply -k` sends."""
    text = check("kubectl", "kustomize", OVERLAY)
    return [*yaml.safe_load_all(text)]


PODS = [pytest.param(pod, id=name(workload)) for workload, pod in pods(sources())]
(REPLICA,) = (one for one in sources() if name(one) == "Deployment cronledger-replica")


def test_each_file_is_part_of_a_kustomization() -> None:
    for path in (DIRECTORY / "base", OVERLAY):
        kustomization = yaml.safe_load((path / "kustomization.yaml").read_text("utf-8"))
        listed = {one for one in kustomization["resources"] if one.endswith(".yaml")}
        assert listed == {x.name for x in path.glob("*.yaml")} - {"kustomization.yaml"}


def validate(manifest: Manifest) -> None:
    if manifest["kind"] in CUSTOM:
        assert manifest["apiVersion"] == "monitoring.coreos.com/v1"
    else:
        kubernetes_validate.validate(manifest, VERSION, strict=True)


@pytest.mark.long
def test_manifests_fit_their_schemas() -> None:
    for one in sources():
        validate(one)


@needs_kubectl
@pytest.mark.long
def test_rendered_manifests_fit_their_schemas(rendered: list[Manifest]) -> None:
    assert len(rendered) == len(sources()) + 1  # the ConfigMap
    for one in rendered:
        assert one["metadata"]["namespace"] == "cronledger"
        validate(one)


@pytest.mark.parametrize("pod", PODS)
def test_a_container_is_restricted_and_runs_a_command_with_settings_that_exist(
    pod: Manifest,
) -> None:
    spec = pod["spec"]
    (container,) = spec["containers"]
    assert parsed(*container["args"]).info_name == container["args"][0]
    assert {variable["name"] for variable in container["env"]} <= VARIABLES
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert container["resources"].keys() == {"requests", "limits"}
    # The user of the image, which Kubernetes cannot know by its name.
    assert f"--uid {spec['securityContext']['runAsUser']} " in (DEPLOY / "Dockerfile").read_text()


@pytest.mark.parametrize("pod", PODS)
def test_a_container_refers_to_what_exists(pod: Manifest) -> None:
    spec = pod["spec"]
    (container,) = spec["containers"]
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
    for probe in (container.get(f"{kind}Probe") for kind in ("liveness", "readiness", "startup")):
        if probe is not None:
            assert (probe.get("httpGet") or probe["tcpSocket"])["port"] in ports
    volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
    mounts = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", ())}
    assert mounts.keys() == volumes.keys()
    given = {x["name"]: x.get("value") for x in container["env"]}
    if port := given.get("CRONLEDGER_HEALTH_PORT"):
        assert ports["health"] == int(port)
    if "--listen" in container["args"]:
        listen = container["args"][container["args"].index("--listen") + 1]
        assert listen == f"0.0.0.0:{next(iter(ports.values()))}"
    for variable in container["env"]:
        if variable["name"].endswith(("_URL", "_TOKENS")):
            assert variable["valueFrom"]["secretKeyRef"]["name"] == "cronledger"
    shared = {"name": "cronledger-config"}
    (directory,) = [mounts[name] for name in mounts if volumes[name].get("configMap") == shared]
    # The file that is the argument, or the one in the directory in which the command starts.
    named = f"{directory}/cronledger.toml" in container["args"]
    assert named or container["workingDir"] == directory


@needs_kubectl
def test_every_selector_that_is_sent_matches_pods_and_ports(rendered: list[Manifest]) -> None:
    workloads = [pod for _, pod in pods(rendered)]
    found = set()
    for one in rendered:
        spec, kind = one.get("spec", {}), one["kind"]
        match kind:
            case "Deployment" | "PodDisruptionBudget" | "PodMonitor":
                labels = spec["selector"]["matchLabels"]
                used = {endpoint["port"] for endpoint in spec.get("podMetricsEndpoints", ())}
            case "Service":
                labels, used = spec["selector"], {port["targetPort"] for port in spec["ports"]}
            case "NetworkPolicy" if "matchExpressions" not in spec["podSelector"]:
                labels = spec["podSelector"]["matchLabels"]
                used = {port["port"] for rule in spec["ingress"] for port in rule["ports"]}
            case _:
                continue
        (pod,) = [pod for pod in workloads if labels.items() <= pod["metadata"]["labels"].items()]
        (container,) = pod["spec"]["containers"]
        assert used <= {port["name"] for port in container.get("ports", ())}
        found.add(kind)
    assert found == {
        "Deployment", "Service", "PodDisruptionBudget", "PodMonitor", "NetworkPolicy",
    }  # fmt: skip


@needs_kubectl
def test_each_pod_has_a_network_policy(rendered: list[Manifest]) -> None:
    chosen: set[str] = set()
    for one in rendered:
        if one["kind"] == "NetworkPolicy":
            selector = one["spec"]["podSelector"]
            chosen |= set(selector.get("matchLabels", {}).values())
            chosen |= {
                x for e in selector.get("matchExpressions", ()) for x in e["values"]
                if e["key"] == COMPONENT
            }  # fmt: skip
    assert {pod["metadata"]["labels"][COMPONENT] for _, pod in pods(rendered)} <= chosen


@needs_kubectl
def test_a_drain_has_its_time(rendered: list[Manifest], tmp_path: Path) -> None:
    spec = {name(one): pod["spec"] for one, pod in pods(rendered)}["Deployment cronledger-replica"]
    (config,) = [one for one in rendered if one["kind"] == "ConfigMap"]
    file = tmp_path / "cronledger.toml"
    file.write_text(config["data"]["cronledger.toml"])
    given = Settings.load(load(file).settings)
    grace = spec["terminationGracePeriodSeconds"]
    assert grace >= given.drain_timeout.total_seconds() + GRACE
    assert spec["volumes"][0]["configMap"]["name"] == config["metadata"]["name"]
    (container,) = spec["containers"]
    assert container["args"][1] == "/etc/cronledger/cronledger.toml"


def test_new_replicas_start_before_old_ones_end_which_have_the_same_time_as_with_compose() -> None:
    spec = REPLICA["spec"]
    assert spec["replicas"] >= 2
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    grace = spec["template"]["spec"]["terminationGracePeriodSeconds"]
    assert compose["services"]["replica"]["stop_grace_period"] == f"{grace}s"


@needs_kubectl
def test_the_rules_know_the_scraped_jobs(rendered: list[Manifest]) -> None:
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yml").read_text("utf-8"))
    expected = {
        one["job_name"]: one.get("honor_labels", False) for one in scraped["scrape_configs"]
    }
    found = {}
    for one in rendered:
        if one["kind"] == "PodMonitor":
            (endpoint,) = one["spec"]["podMetricsEndpoints"]
            ((job,),) = [[x["replacement"] for x in endpoint["relabelings"]]]
            found[job] = endpoint.get("honorLabels", False)
    assert found == expected


KUBECTL = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case "$*" in
    kustomize*) exec "$KUBECTL" "$@" ;;
    *"get pods"*) if [ ! -e "$CALLS.drained" ]; then touch "$CALLS.drained"; echo old; fi ;;
esac
"""


@needs_kubectl
@pytest.mark.long
def test_a_roll_out_migrates_before_and_after(rendered: list[Manifest], tmp_path: Path) -> None:
    """A stand-in for kubectl records the calls."""
    real = check("sh", "-c", "command -v kubectl").strip()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    calls = tmp_path / "calls"
    path = f"{program.parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sh", DIRECTORY / "roll-out.sh", OVERLAY], check=True, timeout=60, capture_output=True,
        env={**os.environ, "PATH": path, "CALLS": str(calls), "KUBECTL": real},
    )  # fmt: skip
    made = calls.read_text().splitlines()
    applied = [call.partition(f"{COMPONENT} in (")[2].rstrip(")") for call in made
               if call.startswith("apply")]  # fmt: skip
    assert applied == ["configuration", "migrate-pre", "replica, page, metrics", "migrate-post"]
    components = {one["metadata"]["labels"][COMPONENT] for one in rendered}
    assert components == {part for one in applied for part in one.split(", ")}
    order = [call for call in made if "wait" in call or "rollout" in call or "get pods" in call]
    assert [call.split()[-1] for call in order if "get pods" not in call] == [
        "job/cronledger-migrate-pre", "deployment/cronledger-replica",
        "deployment/cronledger-page", "deployment/cronledger-metrics",
        "job/cronledger-migrate-post",
    ]  # fmt: skip
    # It waits until no old replica drains any more.
    assert ["get pods" in call for call in order] == [False] * 4 + [True] * 2 + [False]
    assert all("-n cronledger" in call for call in order)
