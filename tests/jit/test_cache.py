"""Kernels on disk are found again, and whatever goes wrong there costs no more than compiling."""

import contextlib
import hashlib
import os
import pickle
import shutil
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from numba import float64

from numbagrad.jit import cache, compile
from numbagrad.jit.compile import compile_source

KEY = hashlib.sha256(b"a kernel").hexdigest()
OTHER = hashlib.sha256(b"another").hexdigest()
posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX's")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache of its own for each test, which has warned of nothing yet."""
    place = tmp_path / "kernels"
    monkeypatch.setenv("NUMBAGRAD_CACHE_DIR", str(place))
    monkeypatch.delenv("NUMBAGRAD_DISK_CACHE", raising=False)
    monkeypatch.setattr(cache, "_warned", False)
    return place


def kernel(monkeypatch, factor=1.5):
    """As a new process would get it."""
    monkeypatch.setattr(compile, "_kernels", {})
    source = f"def scale(x):\n    return x * {factor!r}\n"
    made = compile_source(source, "scale", float64(float64))
    assert made.entry(2.0) == 2.0 * factor
    return made


def only_file(folder):
    (path,) = folder.iterdir()
    return path


# ----- Saving and loading -----


def test_what_was_saved_is_found():
    cache.save(KEY, b"body")
    cache.save(OTHER, b"")
    assert (cache.load(KEY), cache.load(OTHER)) == (b"body", b"")


def test_what_was_not_saved_is_not_found(folder):
    assert cache.load(KEY) is None
    assert not folder.exists()


def test_a_key_is_saved_over():
    cache.save(KEY, b"first")
    cache.save(KEY, b"second")
    assert cache.load(KEY) == b"second"


@posix
def test_nobody_else_has_access(folder):
    cache.save(KEY, b"body")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(only_file(folder).stat().st_mode) == 0o600


def test_nothing_is_left_over(folder):
    for _ in range(3):
        cache.save(KEY, b"body")
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.kernel"]


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no", "false"])
def test_it_can_be_switched_off(word, folder, monkeypatch):
    cache.save(KEY, b"body")
    monkeypatch.setenv("NUMBAGRAD_DISK_CACHE", word)
    assert cache.load(KEY) is None
    cache.save(OTHER, b"body")
    assert len(list(folder.iterdir())) == 1


def test_debug_tells_what_happens(monkeypatch, capsys):
    monkeypatch.setenv("NUMBAGRAD_DEBUG", "kernels,cache")
    cache.load(KEY)
    cache.save(KEY, b"body")
    cache.load(KEY)
    said = [line.split()[3] for line in capsys.readouterr().err.splitlines()]
    assert said == ["missing", "saved", "found"]


# ----- Damage -----


def emptied(path):
    path.write_bytes(b"")


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-1])


def cut_off_early(path):
    path.write_bytes(path.read_bytes()[:20])


def one_bit_flipped(path):
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)


def made_longer(path):
    path.write_bytes(path.read_bytes() + b"\0")


def of_something_else(path):
    path.write_bytes(os.urandom(30_000))


def of_another_key(path):
    cache.save(OTHER, b"the other's body")
    shutil.copy(path.with_name(f"{OTHER}.kernel"), path)
    path.with_name(f"{OTHER}.kernel").unlink()


def a_folder(path):
    path.unlink()
    path.mkdir()


def a_dangling_link(path):
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def a_link_to_itself(path):
    path.unlink()
    path.symlink_to(path)


def a_valid_body_that_is_no_pickle(path):
    cache.save(path.name.removesuffix(".kernel"), b"no pickle")


def a_pickle_of_something_else(path):
    cache.save(path.name.removesuffix(".kernel"), pickle.dumps({"what": "ever"}))


DAMAGE = [
    emptied,
    cut_off,
    cut_off_early,
    one_bit_flipped,
    made_longer,
    of_something_else,
    of_another_key,
    a_folder,
    *([a_dangling_link, a_link_to_itself] if os.name == "posix" else []),
]
WRONG_BODIES = [a_valid_body_that_is_no_pickle, a_pickle_of_something_else]


def name(damage):
    return damage.__name__.replace("_", " ")


@pytest.mark.parametrize("damage", DAMAGE, ids=name)
def test_a_damaged_file_counts_as_absent(damage, folder):
    cache.save(KEY, b"body" * 100)
    damage(only_file(folder))
    assert cache.load(KEY) is None


@pytest.mark.parametrize("damage", DAMAGE + WRONG_BODIES, ids=name)
@pytest.mark.filterwarnings("ignore:kernels are not kept")
def test_a_damaged_kernel_is_compiled_again(damage, folder, monkeypatch):
    assert not kernel(monkeypatch).from_cache
    damage(only_file(folder))
    assert not kernel(monkeypatch).from_cache
    if damage is not a_folder:  # which cannot be replaced by a file
        assert kernel(monkeypatch).from_cache


def test_a_damaged_folder_costs_one_warning(folder, monkeypatch):
    folder.write_text("a file where the folder should be")
    with pytest.warns(RuntimeWarning, match=r"kernels are not kept on disk: .*NUMBAGRAD_CACHE_DIR") as caught:
        made = [kernel(monkeypatch, factor) for factor in (1.5, 2.5)]
    assert [k.from_cache for k in made] == [False, False]
    assert len(caught) == 1


def test_a_folder_that_cannot_be_written_costs_one_warning(folder, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", "somewhere")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.warns(RuntimeWarning, match="Permission denied") as caught:
        [cache.save(key, b"body") for key in (KEY, OTHER)]
    assert len(caught) == 1
    assert cache.load(KEY) is None


def test_a_full_disk_leaves_no_half_file(folder, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        cache.save(KEY, b"body")
    assert not list(folder.iterdir())


def test_a_folder_that_vanished_is_made_again(folder):
    cache.save(KEY, b"body")
    shutil.rmtree(folder)
    assert cache.load(KEY) is None
    cache.save(KEY, b"body")
    assert cache.load(KEY) == b"body"


def test_no_home_is_no_error(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    for variable in ("NUMBAGRAD_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache.load(KEY) is None
    assert cache.size() == (0, 0)
    cache.clear()
    with pytest.warns(RuntimeWarning, match="home directory"):
        cache.save(KEY, b"body")


# ----- Trust -----


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def bomb(folder, tmp_path, monkeypatch):
    """A cache whose one file, correct in form, is a bomb; gives the file that would tell of an explosion."""
    kernel(monkeypatch)
    key = only_file(folder).name.removesuffix(".kernel")
    cache.save(key, pickle.dumps(Bomb(tmp_path / "exploded")))
    return tmp_path / "exploded"


def test_the_bomb_would_explode(bomb, monkeypatch):
    kernel(monkeypatch)
    assert bomb.exists()


@posix
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o722])
def test_a_folder_that_others_can_write_is_not_used(mode, bomb, folder, monkeypatch):
    before = only_file(folder).read_bytes()
    folder.chmod(mode)
    message = rf"{folder} can be written by others .*{mode:o}.*chmod 700"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        made = [kernel(monkeypatch, factor) for factor in (1.5, 9.5)]
    assert [k.from_cache for k in made] == [False, False]
    assert len(caught) == 1
    assert not bomb.exists()
    assert only_file(folder).read_bytes() == before


@posix
def test_a_folder_of_another_user_is_not_used(bomb, folder, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.warns(RuntimeWarning, match=f"{folder} belongs to user {owner}, not to you"):
        assert not kernel(monkeypatch).from_cache
    assert not bomb.exists()


@posix
def test_a_file_that_others_can_write_is_not_read(bomb, folder, monkeypatch):
    only_file(folder).chmod(0o666)
    assert not kernel(monkeypatch).from_cache
    assert not bomb.exists()


@posix
def test_folders_that_others_can_only_read_are_fine(folder, monkeypatch):
    folder.mkdir()
    folder.chmod(0o755)
    kernel(monkeypatch)
    assert kernel(monkeypatch).from_cache


# ----- Where -----


def chosen_folder(monkeypatch, platform="linux", **environment):
    for variable in ("NUMBAGRAD_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in {"HOME": "/home/ada", "USERPROFILE": "/home/ada", **environment}.items():
        monkeypatch.setenv(variable, value)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", platform)
        return cache.folder().as_posix()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "/home/ada/.cache/numbagrad"),
        ({"XDG_CACHE_HOME": "/var/caches"}, "/var/caches/numbagrad"),
        ({"XDG_CACHE_HOME": ""}, "/home/ada/.cache/numbagrad"),
        ({"XDG_CACHE_HOME": "/var/caches", "NUMBAGRAD_CACHE_DIR": "/scratch/k"}, "/scratch/k"),
        ({"NUMBAGRAD_CACHE_DIR": "~/k"}, "/home/ada/k"),
        ({"NUMBAGRAD_CACHE_DIR": ""}, "/home/ada/.cache/numbagrad"),
        ({"platform": "darwin"}, "/home/ada/Library/Caches/numbagrad"),
        ({"platform": "win32"}, "/home/ada/AppData/Local/numbagrad"),
        ({"platform": "win32", "LOCALAPPDATA": "/apps"}, "/apps/numbagrad"),
    ],
    ids=str,
)
def test_the_folder_follows_the_systems_custom(environment, expected, monkeypatch):
    assert chosen_folder(monkeypatch, **environment) == expected


# ----- How much -----


def test_size_and_clear_count_kernels_only(folder):
    assert cache.size() == (0, 0)
    cache.save(KEY, b"12345678")
    cache.save(OTHER, b"")
    (folder / "notes.txt").write_text("mine")
    (folder / f"{KEY}.kernel.0123456789abcdef").write_text("a draft that a crash left behind")
    assert cache.size() == (3, 2 * 32 + 8 + 32)
    cache.clear()
    assert cache.size() == (0, 0)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def keys_that_prune(n):
    return [f"0{i:063x}" for i in range(n)]


def test_the_longest_unused_go_when_it_is_too_much(folder, monkeypatch):
    keys = keys_that_prune(9)
    for age, key in enumerate(keys):
        cache.save(key, bytes(68))
        os.utime(folder / f"{key}.kernel", (1e9 - age, 1e9 - age))
    monkeypatch.setattr(cache, "LIMIT_BYTES", 800)
    (folder / "notes.txt").write_bytes(bytes(10_000))
    cache.save(KEY, b"does not prune")
    assert len(list(folder.iterdir())) == 11
    cache.save("0" + KEY[1:], bytes(68))
    left = {path.name.removesuffix(".kernel") for path in folder.iterdir()}
    assert left == {*keys[:4], KEY, "0" + KEY[1:], "notes.txt"}
    assert cache.size()[1] <= 600


def test_within_the_limit_nothing_goes():
    for key in keys_that_prune(5):
        cache.save(key, bytes(68))
    assert cache.size() == (5, 500)


def test_use_makes_a_file_young(folder):
    cache.save(KEY, b"body")
    os.utime(only_file(folder), (1e9, 1e9))
    cache.load(KEY)
    assert only_file(folder).stat().st_mtime > 1.5e9


# ----- Many processes -----


def start(program, *arguments):
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return said.strip()


COMPILE_THREE = """
from numba import float64
from numbagrad.jit.compile import compile_source, stats
for factor in (1.25, 2.25, 3.25):
    source = f"def scale(x):\\n    return x * {factor!r}\\n"
    assert compile_source(source, "scale", float64(float64)).entry(4.0) == 4.0 * factor
print(stats().kernels_compiled + stats().kernels_loaded, stats().kernels_loaded)
"""


def test_processes_that_compile_at_once_all_succeed(folder):
    said = [finish(process) for process in [start(COMPILE_THREE) for _ in range(3)]]
    assert {line.split()[0] for line in said} == {"3"}
    assert finish(start(COMPILE_THREE)) == "3 3"
    assert cache.size()[0] == 3


WRITE_AND_READ = """
import sys
from numbagrad.jit import cache
body = sys.argv[1].encode() * 50_000
for _ in range(100):
    cache.save("ab" * 32, body)
    found = cache.load("ab" * 32)
    assert found is not None and len(set(found)) == 1 and len(found) == 50_000
"""


def test_writers_of_one_key_never_mix():
    for process in [start(WRITE_AND_READ, letter) for letter in "xyz"]:
        finish(process)
    assert cache.load("ab" * 32) in [letter * 50_000 for letter in (b"x", b"y", b"z")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_uses_the_cache(monkeypatch):
    kernel(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside other tests' threads
        pid = os.fork()
    if pid == 0:
        found = False
        with contextlib.suppress(BaseException):
            found = kernel(monkeypatch).from_cache
        os._exit(0 if found else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_another_version_does_not_find_it(monkeypatch):
    kernel(monkeypatch)
    monkeypatch.setattr(compile, "_VERSIONS", (*compile._VERSIONS[:-1], "0.0"))
    assert not kernel(monkeypatch).from_cache


def test_another_processor_does_not_find_it(monkeypatch):
    kernel(monkeypatch)
    _, context = compile._target(None)
    monkeypatch.setattr(type(context.codegen()), "magic_tuple", lambda self: ("another", "cpu", ""))
    assert not kernel(monkeypatch).from_cache
