"""The files of `examples/cluster`: each against the schema of whoever reads it, as far as that can be installed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from places import ROOT
from townlet import __version__

FOLDER = ROOT / "examples" / "cluster"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_the_manifest_has_what_kuberay_needs() -> None:
    cluster, policy = documents("kuberay.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"].endswith(f":{__version__}")
        assert container["resources"]["requests"] == container["resources"]["limits"]
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert policy["spec"]["podSelector"]["matchLabels"] == {"ray.io/cluster": cluster["metadata"]["name"]}


def test_pods_and_network_policy_fit_the_schemas_of_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    cluster, policy = documents("kuberay.yaml")
    validate(policy, "1.31", strict=True)
    for group in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": group["template"]["spec"]}
        validate(pod, "1.31", strict=True)


def test_both_files_ask_for_a_token() -> None:
    (found,) = documents("cluster.yaml")
    starts = found["head_start_ray_commands"] + found["worker_start_ray_commands"]
    assert all("RAY_AUTH_MODE=token" in line for line in starts if "ray start" in line)
    assert "~/.ray/auth_token" in found["file_mounts"]


@pytest.mark.dist
@pytest.mark.filterwarnings("ignore")
def test_ray_itself_accepts_the_cluster_file() -> None:
    pytest.importorskip("ray")
    from ray.autoscaler._private.util import prepare_config, validate_config

    (found,) = documents("cluster.yaml")
    ready = prepare_config(found)
    validate_config(ready)
    assert ready["max_workers"] == 2


@pytest.mark.dist
@pytest.mark.filterwarnings("ignore")
def test_rays_autoscaler_reads_the_manifest() -> None:
    """The part of Ray that runs beside KubeRay's head derives its own config from a RayCluster, and validates that."""
    pytest.importorskip("ray")
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    cluster, _ = documents("kuberay.yaml")
    found = _derive_autoscaling_config_from_ray_cr(cluster | {"metadata": {"namespace": "default", **cluster["metadata"]}})
    assert found["max_workers"] == 16
    assert found["available_node_types"]["rollouts"]["resources"]["CPU"] == 4
