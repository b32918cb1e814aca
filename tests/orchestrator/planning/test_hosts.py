"""Which stored host this machine is: a Mac keeps its queue, rates and runs whatever network it joins."""

from dataclasses import replace

import pytest
from sqlalchemy import select

from db import models
from db.engine import Database
from db.session import read_only, transaction
from orchestrator.plan import sha256_of
from orchestrator.planning.hosts import host_row, machine_identity, own_host_ids
from workers.machine.host import HostFacts

UUID = "01234567-89AB-4CDE-8F01-23456789ABCD"
MAC = HostFacts(
    hostname="studio.local",
    os="macOS 15.5",
    os_build="24F74",
    chip="Apple M4 Max",
    cpu_count=16,
    performance_cores=12,
    gpu_cores=40,
    memory_bytes=48 * 2**30,
    boot_id="boot",
    hardware_uuid=UUID,
)
OLD = replace(MAC, hardware_uuid=None)  # as earlier versions saw it
TWIN = replace(MAC, hardware_uuid="00000000-0000-4000-8000-000000000002")


def stored(database: Database, host: HostFacts) -> str:
    with transaction(database) as session:
        return host_row(session, host).id


def test_another_name_is_the_same_mac(database: Database) -> None:
    at_home = stored(database, MAC)
    assert stored(database, replace(MAC, hostname="macbook-pro-7.corp.example")) == at_home
    assert own_host_ids(database, replace(MAC, hostname="anything")) == {at_home}


def test_two_macs_of_one_name_and_make_are_two(database: Database) -> None:
    assert stored(database, MAC) != stored(database, TWIN)
    assert machine_identity(MAC) != machine_identity(TWIN)


def test_what_an_earlier_version_stored_stays_known_under_every_name(database: Database) -> None:
    names = ("studio.local", "studio-2.local", "dhcp-10-0-0-7")
    old = {stored(database, replace(OLD, hostname=name)) for name in names}
    assert own_host_ids(database, MAC) == old
    adopted = stored(database, MAC)
    assert adopted in old
    assert own_host_ids(database, replace(MAC, hostname="elsewhere")) == old
    with read_only(database) as session:
        found = session.scalars(select(models.Host)).all()
        assert [row.name for row in found if row.machine_sha256 == machine_identity(MAC)] == ["studio.local"]


@pytest.mark.parametrize(
    "other", [{"chip": "Apple M3"}, {"cpu_count": 8}, {"memory_bytes": 2**34}], ids=lambda each: next(iter(each))
)
def test_a_host_of_other_hardware_is_another(database: Database, other: dict[str, object]) -> None:
    stored(database, replace(OLD, **other))  # type: ignore[arg-type]
    assert own_host_ids(database, MAC) == set()


def test_a_row_that_did_not_come_of_this_program_is_not_adopted(database: Database) -> None:
    """The identity of an imported host is made of other words than a machine's own."""
    with transaction(database) as session:
        facts = {"chip": MAC.chip, "cpu_count": MAC.cpu_count, "memory_bytes": MAC.memory_bytes}
        identity = sha256_of(["imported", MAC.hostname, *facts.values()])
        session.add(models.Host(id="h", name=MAC.hostname, machine_sha256=identity, detail={}, **facts))
    assert own_host_ids(database, MAC) == set()
    assert stored(database, MAC) != "h"


def test_a_linux_machine_is_known_by_its_name_and_hardware(database: Database) -> None:
    first = stored(database, OLD)
    assert stored(database, OLD) == first
    assert stored(database, replace(OLD, hostname="another")) != first
    assert own_host_ids(database, OLD) == {first}
