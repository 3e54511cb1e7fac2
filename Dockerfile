# Dockerfile -- An image with the command, the library and NVRTC, to tune and serve with: docker build -t vitune .
# SPDX-License-Identifier: Apache-2.0
FROM debian:12-slim AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates git make && rm -rf /var/lib/apt/lists/*
WORKDIR /vitune
COPY . .
RUN make archive && mkdir /out && tar --extract --gzip --file build/archives/*.tar.gz --strip-components=1 --directory /out

# Small, and its entry point is the driver's: the container toolkit mounts libcuda at start.
FROM nvidia/cuda:13.0.1-base-ubuntu24.04
RUN apt-get update && apt-get install --yes --no-install-recommends cuda-nvrtc-13-0 && rm -rf /var/lib/apt/lists/*
COPY --from=build /out /usr/local
RUN useradd --uid 10001 --create-home vitune
USER 10001
WORKDIR /home/vitune
ENTRYPOINT ["vitune"]
CMD ["doctor"]
