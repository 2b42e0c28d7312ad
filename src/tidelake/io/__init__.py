"""The ports to the outside world: storage, time, identity, concurrency.

No other package opens a file, reads a clock, draws a random number or starts a thread. Each port is a protocol; the
real implementation is here, and the fakes are in `tidelake.testing`.

Storage:
    fileio         the storage protocol, paths, and the outcomes of a publish
    open           open the storage at a location
    local          a local folder as storage
    posix          the system calls that `local` uses
    memory         storage in memory
    object_store   S3, GCS and Azure
    aws            credentials from AWS profiles
    selftest       test whether a storage creates files exclusively
    sequenced      numbered documents that are created exclusively
    cache          a cache of files that never change
    scratch        local disk space for spilled rows
    lock           a lock around commits

Other ports:
    env            all ports in one value
    clock          time
    ids            identifiers and random numbers
    executor       threads
    retry          delays between tries
    http           post JSON documents to a service
    secrets        keep credentials out of messages
"""

from tidelake.io.clock import Clock, SystemClock, next_time_ms
from tidelake.io.env import Env
from tidelake.io.executor import Executor, SerialExecutor, ThreadExecutor
from tidelake.io.fileio import Created, Exists, FileIO, FileStatus, InputFile, Outcome, OutputFile, Unknown, normalize
from tidelake.io.ids import Ids, SeededIds, SystemIds
from tidelake.io.local import LocalFileIO
from tidelake.io.lock import Lock, NoLock
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
    "Lock",
    "MemoryFileIO",
    "NoLock",
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
