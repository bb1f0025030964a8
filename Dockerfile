# ciphercohort on Debian 13: CPython 3.12, whose OpenFHE wheel needs glibc 2.38 or newer (trixie has
# 2.41, bookworm 2.36).
#
#     docker build -t ciphercohort .
#     docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" ciphercohort cohort simulate
FROM python:3.12-slim-trixie AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/cohort
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY ciphercohort ciphercohort
COPY protocols protocols
COPY parties parties
COPY coordinator coordinator
COPY sims sims
RUN /opt/cohort/bin/pip install -c constraints.txt .

FROM python:3.12-slim-trixie
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd cohort \
    && install -d -o cohort -g cohort /work
COPY --from=build /opt/cohort /opt/cohort
# Libraries keep caches at home, which has to be writable for whatever user is asked for.
ENV PATH=/opt/cohort/bin:$PATH HOME=/tmp FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
USER cohort
WORKDIR /work
CMD ["cohort", "--help"]
