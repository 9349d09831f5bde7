"""Weights are found, whole and plainly named, or refused in one line; what a folder leaves out is never made up."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from taps.model.weight_files import (
    PICKLES,
    SAFETENSORS,
    check_finite,
    find_weights,
    index_of,
    num_parameters,
    read_index,
    read_weights,
)
from taps.plumbing.errors import TapsError

A, B = {"a": torch.ones(2, 3)}, {"b": torch.zeros(4)}


def fill(folder, files):
    """Writes tensors or JSON under the names given; returns the folder."""
    for name, content in files.items():
        if isinstance(content, str):
            (folder / name).write_text(content)
        elif name.endswith(".safetensors"):
            save_file(content, folder / name)
        else:
            torch.save(content, folder / name)
    return folder


def index(file):
    return json.dumps({"metadata": {}, "weight_map": {"a": file}})


@pytest.mark.parametrize(
    ("files", "kind", "names"),
    [
        ({"model.safetensors": A}, SAFETENSORS, ["model.safetensors"]),
        ({"model.safetensors": A, "pytorch_model.bin": B}, SAFETENSORS, ["model.safetensors"]),
        ({"pytorch_model.bin": B}, PICKLES, ["pytorch_model.bin"]),
        ({"model-00001-of-00001.safetensors": A}, SAFETENSORS, ["model-00001-of-00001.safetensors"]),
        (
            {"model-00002-of-00002.safetensors": A, "model-00001-of-00002.safetensors": B},
            SAFETENSORS,
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
        ),
        (
            {"pytorch_model-00001-of-00002.bin": A, "pytorch_model-00002-of-00002.bin": B},
            PICKLES,
            ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"],
        ),
        (
            {
                "one.safetensors": A,
                "two.safetensors": B,
                "model.safetensors.index.json": index("one.safetensors"),
            },
            SAFETENSORS,
            ["one.safetensors"],
        ),
        (
            {"x.bin": A, "pytorch_model.bin.index.json": index("x.bin")},
            PICKLES,
            ["x.bin"],
        ),
    ],
)
def test_weights_are_found_with_an_index_or_without(tmp_path, files, kind, names):
    found = find_weights(fill(tmp_path, files))
    assert found.kind == kind
    assert [path.name for path in found.files] == names
    assert read_weights(found).keys() <= {"a", "b"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"no weights, expected model\*\.safetensors or pytorch_model\*\.bin"),
        ({"adapter_config.json": "{}"}, "an adapter, not a model.*merge the adapter into its base model"),
        ({"model-00001-of-00002.safetensors": A}, "weights missing, found model-00002-of-00002.safetensors"),
        (
            {"pytorch_model-00002-of-00003.bin": A},
            "found pytorch_model-00001-of-00003.bin, pytorch_model-00003",
        ),
        (
            {"model-00001-of-00001.safetensors": A, "model-00001-of-00002.safetensors": B},
            "shards of several sets, found 00001, 00002",
        ),
        ({"model.safetensors.index.json": index("gone.safetensors")}, "weights missing, found gone.safetensors"),
    ],
)
def test_what_is_missing_is_named(tmp_path, files, message):
    with pytest.raises(TapsError, match=message):
        find_weights(fill(tmp_path, files))


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors",
        "/etc/x.safetensors",
        "sub/model.safetensors",
        "..",
        ".hidden.safetensors",
        "model.safetensors\n",
        "model.bin",
        "",
        7,
        None,
    ],
)
def test_an_index_names_plain_files_only(tmp_path, name):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"a": "fine.safetensors", "b": name}}))
    with pytest.raises(TapsError, match=r"names a file that is none, expected a plain name \*\.safetensors") as error:
        read_index(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', '"weight_map"'])
def test_an_index_that_is_none_is_refused(tmp_path, content):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(content)
    with pytest.raises(TapsError, match=r"not an index of weights|not a JSON object"):
        read_index(path)


def test_headers_tell_names_and_sizes(tmp_path):
    fill(tmp_path, {"model-00001-of-00002.safetensors": A, "model-00002-of-00002.safetensors": B})
    files = find_weights(tmp_path).files
    assert index_of(files) == {"a": files[0].name, "b": files[1].name}
    assert num_parameters(files) == 10
    save_file(A, files[1])
    with pytest.raises(TapsError, match=r"00002-of-00002\.safetensors: holds a too"):
        index_of(files)
    files[1].write_bytes(b"short")
    with pytest.raises(TapsError, match=r"00002-of-00002\.safetensors: cannot be read"):
        index_of(files)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_named(value):
    tensors = {name: torch.ones(3) for name in "abcdef"}
    check_finite("here", tensors, remedy="fetch")
    for name in "bcdef":
        tensors[name][1] = value
    with pytest.raises(TapsError, match="here: b, c, d and 2 more is not finite; fetch"):
        check_finite("here", tensors, remedy="fetch")
