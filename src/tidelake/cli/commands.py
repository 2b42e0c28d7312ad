"""All commands, in the order of `--help`: first those that look, then those that write, then maintenance.

Each command opens a table or a lake, calls one of its methods and prints the result as a table or as JSON.
"""

from __future__ import annotations

import click

import tidelake
from tidelake.cli import (
    calling,
    compacting,
    defining,
    exporting,
    following,
    looking,
    maintenance,
    partitions,
    refs,
    system,
    upkeep,
    writing,
)
from tidelake.cli.place import (
    CommonOptions,
    InOrder,
    example,
    location,
    open_named,
    pass_common_options,
    with_common_options,
)


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(tidelake.__version__, prog_name="tidelake")
@with_common_options
def cli() -> None:
    """Streaming lakehouse tables in the Apache Paimon format.

    Exit codes: 0 success, 1 your mistake, 2 a fault of the table or the storage, 3 a bug in tidelake.
    """


@click.command(epilog=example("demo --path my-lake"))
@click.option("--path", help="Where to put the demo lake; a temporary folder by default.")
@click.option("--no-spark", is_flag=True, help="Run in this process, not as jobs of a local Spark.")
@with_common_options
@pass_common_options
def demo(common: CommonOptions, path: str | None, no_spark: bool) -> None:
    """Create a small lake, write, change and read its tables, and show what is inside."""
    from tidelake.cli.demo import run_demo

    run_demo(path, as_json=common.as_json, spark=not no_spark)


@click.command(epilog=example("-w lake doctor shop.users"))
@click.argument("table", required=False)
@with_common_options
@click.pass_context
def doctor(context: click.Context, table: str | None) -> None:
    """Check this machine and the storage of the lake, or diagnose one table.

    Of a table it names small files, skewed buckets, compaction debt, manifests that slow plans down, snapshots past
    their retention, stale consumers and long-lived tags, each with the command that helps. That is advice: the exit
    code is 0. What is broken is what `tidelake check` finds.
    """
    from tidelake.cli.doctor import diagnose_table, run_doctor

    common = context.ensure_object(CommonOptions)
    if table is not None or common.table_path:
        diagnose_table(open_named(common, table), as_json=common.as_json)
        return
    found, storage = location(common)
    if not run_doctor(found, storage, as_json=common.as_json):
        context.exit(2)


for _each in (
    demo,
    looking.ls,
    looking.show,
    looking.schema,
    looking.head,
    exporting.count,
    exporting.export,
    looking.explain,
    looking.why,
    following.diff,
    following.log,
    following.follow,
    *system.COMMANDS,
    defining.create,
    defining.alter,
    defining.drop,
    writing.write,
    writing.delete,
    writing.update,
    compacting.compact,
    compacting.keep_compacted,
    compacting.rescale,
    *upkeep.COMMANDS,
    maintenance.expire,
    partitions.expire_partitions,
    partitions.mark_done,
    maintenance.orphans,
    maintenance.rollback,
    maintenance.rollback_schema,
    refs.tag,
    refs.branch,
    refs.consumers,
    refs.clear_consumers,
    calling.call,
    maintenance.analyze,
    maintenance.check,
    doctor,
):
    cli.add_command(_each)
