"""A quick start of the JVM, which every scheduled run pays for: classes from an archive, and the quick compiler alone.

The archive (Java's class-data sharing) is written by the first process as it ends, and serves every later one that
starts the same way: the same Java, the same jars. One that does not fit is ignored by Java itself. The quick compiler
(C1 without C2) halves the start again and makes long work slower, so that it suits small work only.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

SETTING = "SESSIONIZER_CLASS_ARCHIVE"  # `off` in the environment: start as Java always does
SMALL_BYTES = 32 << 20  # what waits in the source, compressed, that the quick compiler is best for
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"


def java_options(folder: Path, jars: Sequence[str], *, small: bool) -> str:
    """What to start the JVM with. folder: of archives. jars: those beside Spark's own, on the class path."""
    options = [QUICK_COMPILER] if small else []
    if os.environ.get(SETTING, "").lower() not in ("off", "0", "false", "no"):
        options += _archive_options(folder, jars)
    return " ".join(options)


def _archive_options(folder: Path, jars: Sequence[str]) -> list[str]:
    java = _java()
    if java is None:
        return []
    archive = folder / f"classes-{_fingerprint(java, jars)}.jsa"
    quiet = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=off"]
    _take_over_finished(archive)
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}", *quiet]
    if _being_written(archive):
        return []
    return [f"-XX:ArchiveClassesAtExit={_draft(archive, os.getpid())}", *quiet]


def _java() -> Path | None:
    """The java that Spark's launcher will take."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


def _fingerprint(java: Path, jars: Sequence[str]) -> str:
    """What an archive depends on: Java itself, Spark, the jars on the class path."""
    modules = java.parents[1] / "lib" / "modules"
    about = [str(java), version("pyspark"), *(_stamp(Path(jar)) for jar in jars)]
    if modules.exists():
        about.append(_stamp(modules))
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]


def _stamp(file: Path) -> str:
    seen = file.stat()
    return f"{file} {seen.st_size} {seen.st_mtime_ns}"


def _draft(archive: Path, pid: int) -> Path:
    return archive.with_suffix(f".{pid}.draft")


def _drafts(archive: Path) -> list[tuple[Path, int]]:
    found = archive.parent.glob(f"{archive.stem}.*.draft")
    return [(draft, int(draft.suffixes[-2][1:])) for draft in found]


def _take_over_finished(archive: Path) -> None:
    """Use what a process that has ended left behind; Java checks it, and ignores one that was cut off."""
    for draft, _ in _drafts(archive):
        if not _is_open(draft):
            draft.replace(archive)


def _being_written(archive: Path) -> bool:
    return bool(_drafts(archive))


def _is_open(draft: Path) -> bool:
    """Whether a JVM may still be writing it: it has changed within the last seconds."""
    return time.time() - draft.stat().st_mtime < 10
