"""Model files: exact, and either right or refused, whatever has been done to them."""

from __future__ import annotations

import json
import time
import tracemalloc
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import safe_open

from dreamwarp.model import WarpModel, files
from dreamwarp.model.fitting import ClassFit
from tests.data.test_fuzz import AMOUNTS as FUZZ_AMOUNTS
from tests.data.test_fuzz import fuzz
from tests.model.cases import graph_classes, make_space, random_covariance, theta_of

KINDS = ["gaussian", "template"]
UNUSABLE = r"`.*\.dwm` is not a usable model file: .*{}.*\. Save the model again"
# Several times what a good file takes: what a lie about sizes must not go past.
MOST_BYTES = 4 * 2**20


def make_model(kind="gaussian", labels=(0, 1)):
    theta, edges = graph_classes(labels=labels, n_samples=20)
    amounts = {"class_pairs": 4.0, "drift": 0.5} if kind == "template" else {}
    return WarpModel.fit(
        make_space(), theta, kind=kind, edges=edges, shrinkage=0.1, pooling=0.1, **amounts
    ).with_strength(0.8)  # fmt: skip


def draws_of(model):
    templates = np.arange(-1, 9)
    return [model.draw(y, np.arange(10), templates=templates) for y in (*model.classes, None)]


def same(first, second):
    return all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


@pytest.fixture
def stored(tmp_path):
    """``stored(kind)``: a model, the header of its file as JSON, its numbers, and a writer."""

    def make(kind="gaussian"):
        model, path = make_model(kind), tmp_path / f"{kind}.dwm"
        model.save(path)
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header, numbers = json.loads(content[8 : 8 + length]), content[8 + length :]

        def write(header=header, numbers=numbers, description=None, signed=False):
            if signed:  # as one would who knows how
                arrays = files.arrays_of(model)
                description["fingerprint"] = files.hash_contents(description, arrays)
            if description is not None:
                metadata = {files.METADATA_KEY: json.dumps(description)}
                header = {**header, "__metadata__": metadata}
            text = json.dumps(header).encode()
            path.write_bytes(len(text).to_bytes(8, "little") + text + numbers)
            return path

        description = json.loads(header["__metadata__"][files.METADATA_KEY])
        return SimpleNamespace(
            model=model, path=path, header=header, numbers=numbers, description=description,
            write=write, content=content,
        )  # fmt: skip

    return make


def refused(path, message):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=UNUSABLE.format(message)):
            WarpModel.load(path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


# -- what was saved is what is loaded


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_loaded_is_what_was_saved(kind, tmp_path):
    model = make_model(kind)
    model.save(tmp_path / "model.dwm")
    loaded = WarpModel.load(tmp_path / "model.dwm")
    assert loaded.space == model.space and loaded.classes == model.classes
    assert loaded.settings == model.settings and loaded.fits == model.fits
    assert loaded.strength == model.strength == 0.8
    np.testing.assert_array_equal(loaded.covariance(0), model.with_strength(1.0).covariance(0))
    assert same(draws_of(loaded), draws_of(model))
    theta = model.sample(5, 0)
    np.testing.assert_array_equal(loaded.log_prob(theta, 0), model.log_prob(theta, 0))
    loaded.save(tmp_path / "again.dwm")
    assert (tmp_path / "again.dwm").read_bytes() == (tmp_path / "model.dwm").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.dwm", "model.dwm"]


@pytest.mark.parametrize("labels", [(3, -7), ("é", ""), (True, False), ("1", "2")])
def test_labels_keep_their_type(labels, tmp_path):
    theta = dict.fromkeys(labels, theta_of(random_covariance(50), 20))
    model = WarpModel.fit(make_space(), theta, shrinkage=0.1)
    model.save(tmp_path / "model.dwm")
    loaded = WarpModel.load(tmp_path / "model.dwm")
    assert list(map(repr, loaded.classes)) == list(map(repr, labels))


@pytest.mark.parametrize(
    ("cells", "boundary"),
    [((6,), "free"), ((4, 4), "zero"), ((2, 1, 2), "slip"), ((1, 1, 2), "periodic")],
)
def test_every_kind_of_space(cells, boundary, tmp_path):
    space = make_space(cells, boundary)
    theta = np.random.default_rng(0).normal(size=(20, space.dim))
    WarpModel.fit(space, {"a": theta}, shrinkage=0.1).save(tmp_path / "model.dwm")
    assert WarpModel.load(tmp_path / "model.dwm").space == space


def test_classes_that_fell_back_are_kept_so(tmp_path):
    theta = {"a": theta_of(random_covariance(50), 20), "b": np.zeros((0, 50))}
    with pytest.warns(RuntimeWarning, match="fewer than 5 pairs"):
        model = WarpModel.fit(make_space(), theta, shrinkage=0.1)
    model.save(tmp_path / "model.dwm")
    loaded = WarpModel.load(tmp_path / "model.dwm")
    assert loaded.fallbacks == ("b",)
    assert same(draws_of(loaded), draws_of(model))


def test_writing_looks_no_labels_up(tmp_path, monkeypatch):
    """Distributions are found by index: to look all labels up would take quadratic time."""
    model = make_model("template")
    monkeypatch.setattr("dreamwarp.model.warpmodel.encode", None)
    model.save(tmp_path / "model.dwm")
    assert model.fingerprint == WarpModel.load(tmp_path / "model.dwm").fingerprint


def test_fingerprints_tell_models_apart(tmp_path):
    models = [make_model(kind) for kind in KINDS]
    models += [make_model("gaussian", labels=("0", "1")), models[0].with_strength(0.5)]
    assert len({model.fingerprint for model in models}) == len(models)
    assert make_model().fingerprint == models[0].fingerprint
    models[0].save(tmp_path / "model.dwm")
    assert WarpModel.load(tmp_path / "model.dwm").fingerprint == models[0].fingerprint
    assert len(models[0].fingerprint) == 64


def test_other_programs_can_read_the_file(stored):
    import dreamwarp

    case = stored()
    with safe_open(case.path, framework="numpy") as opened:
        factor = opened.get_tensor("0.factor")
        description = json.loads(opened.metadata()[files.METADATA_KEY])
    np.testing.assert_allclose(factor @ factor.T, case.model.covariance(0), atol=1e-15)
    assert description["library_version"] == dreamwarp.__version__
    assert description["classes"][1]["label"] == 1
    assert description["fingerprint"] == case.model.fingerprint


def test_nothing_half_written(tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError("disk full")

    path = tmp_path / "model.dwm"
    make_model().save(path)
    before = path.read_bytes()
    monkeypatch.setattr("safetensors.numpy.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        make_model("template").save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_missing_folders_are_made(tmp_path):
    path = tmp_path / "new" / "folder" / "model.dwm"
    make_model().save(path)
    assert same(draws_of(WarpModel.load(str(path))), draws_of(make_model()))


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        (".", IsADirectoryError, r"` is a folder\. Give the name of a file"),
        ("new/", IsADirectoryError, r"new/` is the name of a folder\. Give the name of a file"),
        ("file/model.dwm", NotADirectoryError, r"file` can't be made: .*\. Choose another"),
        ("a" * 300, OSError, r"can't be written: .*\. Choose a folder"),
        ("a\0b.dwm", ValueError, r"must be a valid path on this system, got .*\. Use another"),
        (None, TypeError, r"`path` must be a str or a pathlib.Path, got None \(NoneType\)"),
        (7, TypeError, r"`path` must be a str or a pathlib.Path, got 7 \(int\)"),
        (b"a.dwm", TypeError, r"`path` must be a str or a pathlib.Path, got b'a.dwm' \(bytes\)"),
    ],
)
def test_places_that_are_none_are_refused(place, error, message, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(error, match=message):
        make_model().save(f"{tmp_path}/{place}" if isinstance(place, str) else place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    if not isinstance(place, str):
        with pytest.raises(error, match=message):
            WarpModel.load(place)


def test_a_disk_without_room_is_named(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "model.dwm"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"model.dwm` can't be written: .*\. Choose a folder"):
            make_model().save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_labels_too_long_for_a_header_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_DESCRIPTION", 100)
    with pytest.raises(ValueError, match=r"labels of 2 classes take .* too many.*shorter labels"):
        make_model().save(tmp_path / "model.dwm")
    assert not list(tmp_path.iterdir())


# -- damage


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_noticed_or_harmless(kind, stored):
    case = stored(kind)
    rng = np.random.default_rng(0)
    n_header = len(case.content) - len(case.numbers)
    places = np.concatenate(
        [np.arange(8), rng.integers(8, n_header, 60), rng.integers(n_header, len(case.content), 20)]
    )
    expected, complaints = draws_of(case.model), []
    tracemalloc.start()
    for place, bit in zip(places, rng.integers(0, 8, len(places)), strict=True):
        damaged = bytearray(case.content)
        damaged[place] ^= 1 << bit
        case.path.write_bytes(damaged)
        try:
            assert same(draws_of(WarpModel.load(case.path)), expected)
        except ValueError as error:
            complaints.append(str(error))
    assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    tracemalloc.stop()
    assert len(complaints) > 0.8 * len(places)
    assert all(text.startswith(f"`{case.path}` ") for text in complaints)


@pytest.mark.parametrize("kind", ["gaussian", "template"])
def test_a_truncated_file_is_refused(kind, stored):
    case = stored(kind)
    lengths = np.linspace(0, len(case.content) - 1, 30).astype(int)
    for length in [*lengths, 7, 8, 9, 10]:
        case.path.write_bytes(case.content[:length])
        refused(case.path, "")
    case.path.write_bytes(case.content + b"\0")
    refused(case.path, "its layout is damaged")


def test_files_of_others_are_refused(tmp_path):
    path = tmp_path / "other.dwm"
    rng = np.random.default_rng(0)
    for content in (b"", b"{}", b"\x89PNG\r\n\x1a\n" + bytes(100), rng.bytes(5000), bytes(5000)):
        path.write_bytes(content)
        refused(path, "")
    from safetensors.numpy import save_file

    save_file({"weight": np.zeros(3)}, path)
    refused(path, "it was not written by dreamwarp")
    save_file({"weight": np.zeros(3)}, path, {"format": "pt"})
    refused(path, "it was not written by dreamwarp")
    with pytest.raises(FileNotFoundError, match=r"missing.dwm` does not exist"):
        WarpModel.load(tmp_path / "missing.dwm")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        WarpModel.load(tmp_path)


# -- lies


def test_headers_that_are_none(stored):
    case = stored()
    for text in (b"[1, 2]", b"{'a'}", b"\xff\xfe{}", b"[" * 100_000, b'{"a":' + b"[" * 100_000):
        case.path.write_bytes(len(text).to_bytes(8, "little") + text)
        refused(case.path, "its layout is damaged")
    case.path.write_bytes((2**40).to_bytes(8, "little") + bytes(100))
    refused(case.path, "its layout is damaged")


@pytest.mark.parametrize("version", [0, -1, "1", 1.0, True, None])
def test_versions_that_are_none(version, stored):
    case = stored()
    description = {**case.description, "version": version}
    refused(case.write(description=description), f"its format version is {version!r}")


def test_a_file_of_a_later_version_is_refused_by_name(stored):
    case = stored()
    case.write(description={**case.description, "version": 5})
    with pytest.raises(ValueError, match=r"gaussian.dwm` has format 5, but .*format 4\. Upgrade"):
        WarpModel.load(case.path)


def test_a_file_with_strength_in_its_warps_is_refused(stored):
    case = stored()
    case.write(description={**case.description, "version": 1})
    with pytest.raises(ValueError, match=r"has format 1, .*reads format 4\. Fit the model again"):
        WarpModel.load(case.path)


def test_a_header_without_a_model(stored):
    case = stored()
    for model, message in [
        (None, "its layout is damaged"),
        ("3", "not a JSON object"),
        ("{", "not JSON"),
    ]:
        metadata = {files.METADATA_KEY: model}
        refused(case.write({**case.header, "__metadata__": metadata}), message)


def test_lies_about_the_layout(stored):
    case, damaged = stored(), "its layout is damaged"
    entry = case.header["0.factor"]
    begin, end = entry["data_offsets"]
    for changed, message in [
        ({"shape": [2**40, 2**40]}, damaged),
        ({"shape": [50, 51]}, damaged),
        ({"shape": [2**60]}, damaged),
        ({"shape": [-50, -50]}, damaged),
        ({"shape": [50.0, 50]}, damaged),
        ({"shape": [1] * 1000}, damaged),
        ({"shape": "50"}, damaged),
        ({"data_offsets": [begin]}, damaged),
        ({"data_offsets": [begin + 8, end + 8]}, damaged),
        ({"shape": [25, 100]}, "should be F64 of shape"),
        ({"shape": [2500]}, "should be F64 of shape"),
        ({"dtype": "F32"}, damaged),
        ({"dtype": 7}, damaged),
        ({"dtype": "I64"}, "should be F64 of shape"),
    ]:
        refused(case.write({**case.header, "0.factor": {**entry, **changed}}), message)
    refused(case.write({**case.header, "0.factor": 3}), damaged)


def test_arrays_that_should_not_be_there_or_should(stored):
    case = stored()
    renamed = {("2.factor" if k == "1.factor" else k): v for k, v in case.header.items()}
    refused(case.write(renamed), "it lacks an array '1.factor'")
    empty = {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}
    refused(case.write({**case.header, "more": empty}), "it must not have an array 'more'")


def test_arrays_that_do_not_agree(stored):
    case = stored("template")
    entry = case.header["0.theta"]
    n = entry["shape"][0]
    wide = {**entry, "shape": [25 * n, 2]}
    refused(case.write({**case.header, "0.theta": wide}), r"'0.theta' should be F64 of shape")
    assert n > 2
    for part in ("pool", "0"):
        turned = {**case.header[f"{part}.factor"], "shape": [25, 100]}
        refused(case.write({**case.header, f"{part}.factor": turned}), "should be F64")


def test_parts_of_different_sizes(stored):
    case = stored()
    name, entry = max(case.header.items(), key=lambda item: item[1].get("data_offsets", [0, 0]))
    begin, end = entry["data_offsets"]
    more = 8 * (51**2 - 50**2)
    larger = {**entry, "shape": [51, 51], "data_offsets": [begin, end + more]}
    refused(
        case.write({**case.header, name: larger}, case.numbers + bytes(more)),
        r"its parts differ in their number of parameters: \[50, 51\]",
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cells": [4, 5]}, r"its arrays have 50 parameters, but its space \(4, 5\) has 64"),
        ({"cells": [10**9, 10**9]}, r"its space \(.*\) has far more"),
        ({"cells": [10**9]}, r"its space \(.*\) has far more"),
        ({"cells": [400, 400]}, r"its space \(400, 400\) has far more"),
        ({"cells": []}, r"its space has cells \[\]"),
        ({"cells": [4, 0]}, r"its space has cells \[4, 0\]"),
        ({"cells": [4, 4, 4, 4]}, "its space has cells"),
        ({"cells": "44"}, "'cells' of the space is '44'"),
        ({"boundary": "open"}, "its space has boundary 'open'"),
        ({"boundary": "free"}, r"its space \(4, 4\) has 82"),
        ({"cells": [1], "boundary": "zero"}, "has no warp but the identity"),
    ],
)
def test_lies_about_the_space(changed, message, stored):
    case = stored()
    space = {**case.description["space"], **changed}
    refused(case.write(description={**case.description, "space": space}, signed=True), message)


def test_fields_that_are_no_longer_used_are_ignored(stored):
    case = stored()
    case.description["space"]["volume_preserving"] = False
    path = case.write(description=case.description, signed=True)
    loaded = WarpModel.load(path)
    assert same(draws_of(loaded), draws_of(case.model))
    assert loaded.fingerprint == case.description["fingerprint"] != case.model.fingerprint


@pytest.mark.parametrize("boundary", ["zero", "slip", "free", "periodic"])
@pytest.mark.parametrize("cells", [[5, 5, 8], [20, 20, 20], [1, 1, 10**6], [10**6, 3]])
def test_lies_about_the_space_cost_no_time(boundary, cells, stored):
    # To make such a space would take half a minute, or for ever.
    case, start = stored(), time.perf_counter()
    space = {"cells": cells, "boundary": boundary}
    message = r"its space \(.*\) has far more"
    refused(case.write(description={**case.description, "space": space}, signed=True), message)
    assert time.perf_counter() - start < 5.0


def test_damage_to_the_space_is_noticed_before_it_is_made(stored, monkeypatch):
    case = stored()
    monkeypatch.setattr(files, "make_space", None)
    space = {**case.description["space"], "boundary": "slip"}
    refused(case.write(description={**case.description, "space": space}), "match its fingerprint")


def test_kinds_of_earlier_versions_are_named(stored):
    case = stored()
    settings = {**case.description["settings"], "kind": "kde"}
    path = case.write(description={**case.description, "settings": settings}, signed=True)
    with pytest.raises(ValueError, match=r"kind 'kde', which this version .* Fit the model again"):
        WarpModel.load(path)


def test_brackets_within_brackets(stored):
    case = stored()
    deep: list = []
    for _ in range(900):
        deep = [deep]
    case.description["classes"][0]["more"] = deep
    refused(case.write(description=case.description), "")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"strength": -1.0}, "'strength' of the model is -1.0"),
        ({"strength": "1"}, "'strength' of the model is '1'"),
        ({"strength": 1e999}, "'strength' of the model is inf"),
        ({"strength": 10**400}, "'strength' of the model is 1000"),
        ({"strength": 0.5}, "do not match its fingerprint, so it was damaged"),
        ({"settings": {}}, "its kind None is unknown"),
        ({"settings": {"kind": "odd"}}, "its kind 'odd' is unknown"),
        ({"settings": {"kind": "template"}}, "is of kind 'gaussian' instead of 'template'"),
        ({"settings": {"kind": "gaussian", "x": []}}, "setting `x` of a model must be a word or a"),
        (
            {"settings": {"kind": "gaussian", "x": float("nan")}},
            "setting `x` .* must be a word or a number, got nan",
        ),
        ({"settings": {"kind": "gaussian", "x": True}}, "must be a word or a number, got True"),
        (
            {"settings": {"kind": "gaussian", "network_strength": -1.0}},
            r"a number from 0 to 1e\+100, got -1.0",
        ),
        ({"settings": {"kind": "gaussian", "network_strength": "1"}}, "a number .*, got '1'"),
        (
            {"settings": {"kind": "gaussian", "power": 2.0}},
            "`power` .* a number from 0 to 1, got 2.0",
        ),
        ({"settings": {"kind": "gaussian", "power": "x"}}, "setting `power` .* got 'x'"),
        ({"settings": {"kind": "gaussian", "match": "x"}}, "`match` .* or 'known' or .* got 'x'"),
        ({"settings": {"kind": "gaussian", "method": "x"}}, "`method` .* or 'map' or .* got 'x'"),
        (
            {"settings": {"kind": "gaussian", "sigma": 0.0}},
            "'auto' or a number from 1e-100 to .* got 0.0",
        ),
        ({"settings": {"kind": "gaussian", "n_neighbors": 2.5}}, "an integer from 1 to .* got 2.5"),
        ({"pool": {"kind": "template", "parameters": {}}}, "the pool is of kind 'template' inst"),
        ({"pool": {"kind": "gaussian"}}, "the pool lacks a 'parameters'"),
        ({"classes": []}, "there must be at least one class, got none"),
        ({"classes": [3]}, "class number 0 is not described"),
        ({"classes": {}}, "'classes' of the model is {}"),
        ({"fingerprint": 7}, "'fingerprint' of the model is 7"),
        ({"fingerprint": "0" * 64}, "do not match its fingerprint"),
        ({"library_version": None}, "'library_version' of the model is None"),
    ],
)
def test_lies_about_the_model(changed, message, stored):
    case = stored()
    refused(case.write(description={**case.description, **changed}), message)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"label": 1}, "labels must differ, got 1 twice"),
        ({"label": "a"}, "labels must be of one type, got int and str"),
        ({"label": 1.5}, "labels must be strings, integers or booleans, got 1.5"),
        ({"label": [1]}, "labels must be strings"),
        ({"label": 2**70}, "integer labels must be below"),
        ({"n_pairs": 2.5}, "'n_pairs' of class number 0 is 2.5"),
        ({"n_pairs": -1}, "'n_pairs' of class number 0 is -1"),
        ({"shrinkage": 1.5}, "'shrinkage' of class number 0 is 1.5"),
        ({"pooling": None}, "'pooling' of class number 0 is None"),
        ({"fell_back": 0}, "'fell_back' of class number 0 is 0"),
        ({"fell_back": True}, "it must not have an array '0.factor'"),
        ({"parameters": 3}, "'parameters' of class number 0 is 3"),
        ({"kind": "mystery"}, "class number 0 is of kind 'mystery' instead of 'gaussian'"),
    ],
)
def test_lies_about_a_class(changed, message, stored):
    case = stored()
    first, second = case.description["classes"]
    classes = [{**first, **changed}, second]
    refused(case.write(description={**case.description, "classes": classes}), message)
    del first["label"]
    refused(case.write(description=case.description), "class number 0 lacks a 'label'")


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        ("gaussian", "pool.factor", np.nan, "holds numbers that are not finite, or too large"),
        ("gaussian", "0.factor", np.inf, "holds numbers that are not finite, or too large"),
        ("gaussian", "0.factor", -1e200, "holds numbers that are not finite, or too large"),
        ("gaussian", "0.factor", 1.0, "do not match its fingerprint"),
        ("gaussian", "0.factor", -1.0, "part '0' has a factor that is not lower triangular"),
        ("template", "1.weights", -1.0, "part '1' has negative sample indices or weights"),
        ("template", "1.edges", np.int64(-1), "part '1' has negative sample indices or weights"),
    ],
)
def test_numbers_that_can_t_be(kind, name, value, message, stored):
    case = stored(kind)
    numbers = bytearray(case.numbers)
    begin, _ = case.header[name]["data_offsets"]
    numbers[begin : begin + 8] = np.array([value]).tobytes()
    refused(case.write(numbers=bytes(numbers)), message)


def test_template_amounts_that_can_t_be(stored):
    case = stored("template")
    parameters = case.description["classes"][0]["parameters"]
    for name, value in (("class_pairs", 0.0), ("drift", 2.0)):
        case.description["classes"][0]["parameters"] = {**parameters, name: value}
        message = f"'{name}' of class number 0 is {value}"
        refused(case.write(description=case.description), message)
    numbers = bytearray(case.numbers)
    begin, end = case.header["0.weights"]["data_offsets"]
    numbers[begin:end] = bytes(end - begin)
    case.description["classes"][0]["parameters"] = parameters
    refused(
        case.write(numbers=bytes(numbers), description=case.description), "has no weight above 0"
    )


def test_a_header_that_safetensors_itself_refuses(stored, monkeypatch):
    case = stored()

    def fail(*arguments, **options):
        from safetensors import SafetensorError

        raise SafetensorError("too strange")

    monkeypatch.setattr("safetensors.safe_open", fail)
    refused(case.path, "too strange")


@pytest.mark.parametrize("n", FUZZ_AMOUNTS)
def test_mutated_model_files(tmp_path, n):
    seeds = []
    for kind in KINDS:
        make_model(kind).save(tmp_path / "model.dwm")
        seeds.append((tmp_path / "model.dwm").read_bytes())
    # The fingerprint lets next to nothing pass.
    assert fuzz(tmp_path / "mutant.dwm", WarpModel.load, seeds, n, expands=False) < 0.1 * n


def test_all_of_a_class_is_stored():
    assert set(files.FIT_FIELDS) == {each.name for each in fields(ClassFit)}
