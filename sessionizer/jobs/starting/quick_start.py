"""A quick start of the JVM, which every scheduled run pays for: classes from an archive, and the quick compiler alone.

The archive (Java's class-data sharing) is written by the first process as it ends, and serves every later one that
starts the same way: the same Java, the same jars in the same places. Java itself ignores one that does not fit.
The quick compiler (C1 without C2) halves the start again and makes long work slower, so that it suits small work only.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

SETTING = "SESSIONIZER_CLASS_ARCHIVE"  # `off` in the environment: start as Java always does
STILL = 10  # seconds after which a draft that does not change is no longer being written
DRAFT = ".draft"
KEPT = 4  # archives: some 200 MB each, one for each environment that starts Spark
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"


def java_options(folder: Path, jars: Sequence[str], *, small: bool) -> str:
    """What to start the JVM with. folder: of archives. jars: those beside Spark's own, on the class path."""
    options = [QUICK_COMPILER] if small else []
    if os.environ.get(SETTING, "").lower() not in ("off", "0", "false", "no"):
        options += _archive_options(folder, jars)
    return " ".join(options)


def _archive_options(folder: Path, jars: Sequence[str]) -> list[str]:
    java = _java()
    if java is None or any(letter.isspace() for letter in str(folder)):  # Spark splits the options at spaces
        return []
    archive = folder / f"classes-{_fingerprint(java, jars)}.jsa"
    quiet = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=off"]
    writing = _take_over_finished(archive)
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}", *quiet]
    if writing:
        return []
    return [f"-XX:ArchiveClassesAtExit={archive.with_suffix(f'.{os.getpid()}{DRAFT}')}", *quiet]


def _java() -> Path | None:
    """The java that Spark's launcher will take."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


def _fingerprint(java: Path, jars: Sequence[str]) -> str:
    """What an archive depends on: Java itself, and the jars on the class path, where they lie and as they are."""
    modules = java.parents[1] / "lib" / "modules"
    sparks = sorted((Path(_find_spark_home()) / "jars").glob("*.jar"))
    about = [str(java), *map(_stamp, [*sparks, *map(Path, jars), *([modules] if modules.exists() else [])])]
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]


def _stamp(file: Path) -> str:
    seen = file.stat()
    return f"{file} {seen.st_size} {seen.st_mtime_ns}"


def _take_over_finished(archive: Path) -> bool:
    """Use what a process that has ended left behind; whether another one is still being written."""
    writing = False
    for draft in archive.parent.glob(f"{archive.stem}.*{DRAFT}"):
        with suppress(OSError):  # another process has been faster, or the folder is not ours to write to
            if time.time() - draft.stat().st_mtime < STILL:
                writing = True
            elif _is_whole(draft):
                draft.replace(archive)
                for old in sorted(archive.parent.glob("*.jsa"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
                    old.unlink()
            else:
                draft.unlink()
    return writing


def _is_whole(draft: Path) -> bool:
    """Java writes the head of an archive last: without it, it was cut off."""
    with draft.open("rb") as file:
        return any(file.read(4))
