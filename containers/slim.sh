#!/bin/sh
# Removes files from a virtual environment that are not needed at run time: C++ headers, libclang,
# the tests of numerical packages, and CUDA libraries that neither TensorFlow nor other CUDA
# libraries load (cuRAND, cuSOLVER for several GPUs, a second NVRTC).
# Usage: slim.sh VENV
set -eu
for packages in "$1"/lib/python3*/site-packages; do
  rm -rf "$packages/tensorflow/include" "$packages/pyarrow/include" "$packages/pyarrow/tests" \
    "$packages/clang" "$packages"/nvidia/*/include "$packages"/nvidia/*/lib/*.a \
    "$packages/nvidia/curand" "$packages"/nvidia/cusolver/lib/libcusolverMg.so.* \
    "$packages"/nvidia/cuda_nvrtc/lib/*.alt.so.*
  for package in matplotlib numpy pandas scipy sklearn tensorflow_datasets; do
    if [ -d "$packages/$package" ]; then
      find "$packages/$package" -type d -name tests -prune -exec rm -rf {} +
    fi
  done
done
