"""Builds a wheel of examples/wnpu.py and the shared library, as pip asks for it (PEP 517), with
Python's own modules and a C compiler: $CC with $CFLAGS, or cc -O2."""
import base64
import hashlib
import io
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
HERE = "examples/packaging"
SOURCES = ("LICENSE", "README.md", "whisper_npu.c", "whisper_npu.h", "examples/wnpu.py",
           HERE + "/pip_backend.py", HERE + "/pyproject.toml", HERE + "/wnpu.map")
LIBRARY = {"darwin": "libwnpu.dylib", "win32": "wnpu.dll"}.get(sys.platform, "libwnpu.so.0")

if not os.path.exists(os.path.join(ROOT, "whisper_npu.c")):
    raise FileNotFoundError("whisper_npu.c is not two folders above: pip before 21.3 builds a copy "
                            "of this folder alone; update pip")


def read(name):
    with open(os.path.join(ROOT, name), "rb") as file:
        return file.read()


def version():
    numbers = re.findall(rb"#define WNPU_VERSION_[MP][A-Z]* +(\d+)", read("whisper_npu.h"))
    return b".".join(numbers).decode()


def metadata():
    return ("Metadata-Version: 2.1\nName: wnpu\n" f"Version: {version()}\n"
            "Summary: Speech to text with Whisper models on CPUs\nLicense: MIT\n"
            "Requires-Python: >=3.8\n")


def library(folder):
    """Compiles it into folder; the NPU part, which Python does not use, is left out."""
    path = os.path.join(folder, LIBRARY)
    flags = ["-shared", "-fPIC", *shlex.split(os.environ.get("CFLAGS", "-O2"))]
    if sys.platform.startswith("linux"):
        flags += ["-Wl,-soname," + LIBRARY, "-Wl,--version-script=" + HERE + "/wnpu.map"]
    command = [*shlex.split(os.environ.get("CC", "cc")), *flags, "whisper_npu.c", "-o", path, "-lm"]
    if sys.platform != "win32":
        command.append("-lpthread")
    subprocess.run(command, cwd=ROOT, check=True)
    with open(path, "rb") as file:
        return file.read()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    tag = "py3-none-" + re.sub("[-.]", "_", sysconfig.get_platform())
    name, info = f"wnpu-{version()}-{tag}.whl", f"wnpu-{version()}.dist-info/"
    with tempfile.TemporaryDirectory() as folder:
        files = {"wnpu/__init__.py": read("examples/wnpu.py"), "wnpu/" + LIBRARY: library(folder)}
    files[info + "LICENSE"] = read("LICENSE")
    files[info + "METADATA"] = metadata().encode()
    files[info + "WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: {__name__}\nRoot-Is-Purelib: false\n"
                             f"Tag: {tag}\n").encode()
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """Its root has a pyproject.toml, too, as is required of an sdist."""
    base = f"wnpu-{version()}"
    project = read(HERE + "/pyproject.toml").replace(b'["."]', f'["{HERE}"]'.encode())
    with tarfile.open(os.path.join(sdist_directory, base + ".tar.gz"), "w:gz") as archive:
        for name in SOURCES:
            archive.add(os.path.join(ROOT, name), f"{base}/{name}")
        for name, data in ("PKG-INFO", metadata().encode()), ("pyproject.toml", project):
            info = tarfile.TarInfo(f"{base}/{name}")
            info.size, info.mtime = len(data), int(time.time())
            archive.addfile(info, io.BytesIO(data))
    return base + ".tar.gz"
