# CPU:  docker build -t fl_platform .
# CUDA: docker build -t fl_platform:cuda --build-arg BASE=nvidia/cuda:12.8.1-runtime-ubuntu24.04 .
#       docker run --gpus all ...
#
#   docker run --rm -v "$PWD/runs:/work/runs" fl_platform run algorithm.name=gradma num_rounds=20
#
# Python is installed from the base's own packages when the base does not bring one, as the CUDA images do not, and with it
# the compiler that Triton calls on a GPU.
ARG BASE=python:3.11-slim
FROM ${BASE}

RUN if ! command -v python3 >/dev/null || ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'; then \
        apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv python3-dev gcc libc6-dev && rm -rf /var/lib/apt/lists/*; \
    fi

WORKDIR /opt/fl_platform
COPY requirements.txt constraints.txt ./
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --constraint constraints.txt --requirement requirements.txt
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY sweeps sweeps
COPY reports reports
COPY fl_platform fl_platform
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps .

# Compiled for the processor that the image is built on; another one compiles for itself.
RUN /opt/venv/bin/fl-platform prepare

# Small models run fastest with one thread per process.
ENV PATH=/opt/venv/bin:$PATH OMP_NUM_THREADS=1
WORKDIR /work
ENTRYPOINT ["fl-platform"]
CMD ["--help"]
