"""The doors to the outside: bytes, time, identity, concurrency.

Nothing else in the house opens a file, looks at a clock, draws a random number or starts a thread. Each door is a
protocol with the real thing here and a fake in `tidelake.testing`.
"""

from tidelake.io.clock import Clock, SystemClock, next_time_ms
from tidelake.io.env import Env
from tidelake.io.executor import Executor, SerialExecutor, ThreadExecutor
from tidelake.io.fileio import Created, Exists, FileIO, FileStatus, InputFile, Outcome, OutputFile, Unknown, normalize
from tidelake.io.ids import Ids, SeededIds, SystemIds
from tidelake.io.local import LocalFileIO
from tidelake.io.memory import MemoryFileIO
from tidelake.io.object_store import ObjectStoreFileIO
from tidelake.io.open import open_fileio
from tidelake.io.retry import RetryOptions, delays
from tidelake.io.secrets import Secret
from tidelake.io.selftest import probe_create_exclusive
from tidelake.io.sequenced import SequencedStore

__all__ = [
    "Clock",
    "Created",
    "Env",
    "Executor",
    "Exists",
    "FileIO",
    "FileStatus",
    "Ids",
    "InputFile",
    "LocalFileIO",
    "MemoryFileIO",
    "ObjectStoreFileIO",
    "Outcome",
    "OutputFile",
    "RetryOptions",
    "Secret",
    "SeededIds",
    "SequencedStore",
    "SerialExecutor",
    "SystemClock",
    "SystemIds",
    "ThreadExecutor",
    "Unknown",
    "delays",
    "next_time_ms",
    "normalize",
    "open_fileio",
    "probe_create_exclusive",
]
