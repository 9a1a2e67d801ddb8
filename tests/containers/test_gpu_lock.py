"""Test that the libraries of the image for GPUs run on every GPU that a job can request."""

import importlib.metadata

from packaging.requirements import Requirement
from packaging.version import Version

from components.machines.machine_types import accelerators, list_offered_accelerators
from tests.containers import image_files


def capabilities(cudnn, cuda):
    """Return the lowest and the highest compute capability that the libraries support.

    From the support matrix of cuDNN and the release notes of CUDA.
    """
    lowest = 7.5 if cudnn >= Version("9.11") or cuda >= Version("13") else 5.0
    highest = 12.0 if cudnn >= Version("9.7") and cuda >= Version("12.8") else 9.0
    return lowest, highest


def test_cudnn_and_cuda_support_every_offered_gpu():
    versions = image_files.locked("containers/gpu")
    cudnn, cuda = (versions[f"nvidia-{name}-cu12"] for name in ("cudnn", "cuda-runtime"))
    lowest, highest = capabilities(Version(cudnn), Version(cuda))
    known = {name: accelerators()[name].capability for name in list_offered_accelerators()}
    assert [name for name, version in known.items() if not lowest <= version <= highest] == []


def test_locked_libraries_satisfy_tensorflow():
    versions = image_files.locked("containers/gpu")
    needed = [Requirement(text) for text in importlib.metadata.requires("tensorflow") or ()]
    of_cuda = [need for need in needed if need.name.startswith("nvidia-")]
    assert len(of_cuda) > 10
    assert [str(need) for need in of_cuda if versions[need.name] not in need.specifier] == []


def test_tensorflow_has_kernels_for_every_offered_gpu():
    import tensorflow as tf

    built = tf.sysconfig.get_build_info()["cuda_compute_capabilities"]
    binary = [int(name.removeprefix("sm_")) for name in built if name.startswith("sm_")]
    compiled_later = [
        int(name.removeprefix("compute_")) for name in built if name.startswith("comp")
    ]
    for name in list_offered_accelerators():
        capability = round(10 * accelerators()[name].capability)
        # A binary runs on later GPUs of its generation, PTX is compiled for all later ones.
        runs = [arch for arch in binary if arch // 10 == capability // 10 and arch <= capability]
        assert runs or [arch for arch in compiled_later if arch <= capability], name
