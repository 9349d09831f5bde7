# The environment of `make env` in an image; the study itself runs in a folder of yours.
#
#     docker build --tag taps .
#     docker run --rm --user "$(id -u):$(id -g)" --env HOME=/tmp --volume "$PWD":/study taps \
#         --snakefile /taps/Snakefile --directory /study --cores 8 all
#
# Not built where it was written, which has no Docker daemon. Tried there: the editable installation from these few files
# finds the whole package once it is copied.
FROM python:3.11-slim-bookworm

# git: results name the commit that made them. g++: DeepSpeed may compile an operator.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make \
    && rm -rf /var/lib/apt/lists/*

# What the environment depends on comes first, so that an edit of the package installs nothing again.
WORKDIR /taps
COPY LICENSE Makefile README.md pyproject.toml requirements.lock ./
COPY taps/__init__.py taps/
RUN make env

COPY . .
RUN git config --system --add safe.directory /taps
ENV PATH=/taps/.venv/bin:$PATH
WORKDIR /study
ENTRYPOINT ["snakemake"]
