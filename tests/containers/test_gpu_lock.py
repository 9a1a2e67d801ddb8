"""The libraries of the image for GPUs run on every GPU that a job can ask for."""

import importlib.metadata
import re

from packaging.requirements import Requirement
from packaging.version import Version

from tests.containers import files
from trainer.machines.machine_types import accelerators, offered


def locked():
    """Returns the versions in containers/gpu.lock, by package."""
    text = (files.ROOT / "containers" / "gpu.lock").read_text()
    return {name: Version(version) for name, version in re.findall(r"^([\w-]+)==(\S+)", text, re.M)}


def capabilities(cudnn, cuda):
    """Returns the lowest and the highest compute capability that libraries know.

    From the support matrix of cuDNN and the release notes of CUDA.
    """
    lowest = 7.5 if cudnn >= Version("9.11") or cuda >= Version("13") else 5.0
    highest = 12.0 if cudnn >= Version("9.7") and cuda >= Version("12.8") else 9.0
    return lowest, highest


def test_cudnn_and_cuda_know_every_gpu_that_is_offered():
    versions = locked()
    lowest, highest = capabilities(
        versions["nvidia-cudnn-cu12"], versions["nvidia-cuda-runtime-cu12"]
    )
    unknown = {
        name: accelerators()[name].capability
        for name in offered()
        if not lowest <= accelerators()[name].capability <= highest
    }
    assert unknown == {}


def test_tensorflow_takes_the_libraries_that_are_locked():
    versions = locked()
    needed = [Requirement(one) for one in importlib.metadata.requires("tensorflow") or ()]
    of_cuda = [one for one in needed if one.name.startswith("nvidia-")]
    assert len(of_cuda) > 10
    assert [str(one) for one in of_cuda if versions[one.name] not in one.specifier] == []


def test_tensorflow_has_kernels_for_every_gpu_that_is_offered():
    import tensorflow as tf

    built = tf.sysconfig.get_build_info()["cuda_compute_capabilities"]
    binary = [int(one.removeprefix("sm_")) for one in built if one.startswith("sm_")]
    compiled_later = [int(one.removeprefix("compute_")) for one in built if one.startswith("comp")]
    for name in offered():
        capability = round(10 * accelerators()[name].capability)
        # A binary runs on later GPUs of its generation, PTX is compiled for all later ones.
        runs = [one for one in binary if one // 10 == capability // 10 and one <= capability]
        assert runs or [one for one in compiled_later if one <= capability], name
