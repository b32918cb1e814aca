"""A machine's answers are kept without anything personal, and given again as they came."""

import pwd

import pytest

from tests.workers.machine.captures import CAPTURED, READ
from tests.workers.machines import Recorded
from workers.machine.crosschecks import AGREES, DISAGREES, compared, parse_ps_time, same
from workers.machine.recording import Recording, Replayed, as_values, from_values, personal_names, redacted
from workers.machine.system import Unreadable

PERSONAL = [
    ("Ada-Lovelaces-MacBook-Pro.local", "Ada-Lovelaces-MacBook-Pro"),
    ("/Users/ada/venv/bin/python", "ada"),
    ("/Volumes/Ada's disk/models", "Ada"),
    ("ether a4:83:e7:12:34:56", "a4:83"),
    ("inet 192.168.1.23 netmask", "192.168"),
    ("inet6 fe80:0:0:0:1c:b2ff:fe12:3456", "fe80"),
    ('"IOPlatformSerialNumber" = "C02XK0AAJGH5"', "C02XK"),
    ('"IOPlatformUUID" = "8E0B4D4E-0000-4C0F-9C55-4B9A6E9E52B1"', "8E0B"),
    ('"IOUserClientCreator" = "pid 512, Private Notes"', "Private"),
    ("kern.bootsessionuuid: 8E0B4D4E-0000-4C0F-9C55-4B9A6E9E52B1", "8E0B"),
    ("write to ada@example.org", "example"),
    # As people name their disks, machines and selves.
    ("/Users/Ada Lovelace/My Models/x", "models"),
    ('open "/Volumes/Back up of Lovelace/x" failed', "lovelace"),
    ("/Volumes/Ada\u2019s Disk/q.safetensors", "disk"),
    ("/System/Volumes/Data/Users/ada/x", "ada"),
    ("/Network/Servers/uni.example.org/Home/x", "uni"),
    ("/private/var/folders/8j/abc123/T/x", "abc123"),
    ("/Applications/Secret Diary.app/Contents/MacOS/Diary", "diary"),
    ("/opt/the-secret-project/bin/python: no such file", "project"),
    ("file:///Users/ada/x", "ada"),
    ("inet6 fe80::1c:b2ff:fe12:3456%en0", "fe12"),
    ("to 2001:db8::8a2e:370:7334", "8a2e"),
    ("ether a4-83-e7-12-34-56", "a4-83"),
    ("jürgen@müller.example wrote", "rgen"),
    ("cannot reach studio-7.corp.example.com", "studio"),
    ("      Serial Number (system): C02XK0AAJGH5", "C02XK"),
    (" -InternalBattery-0 (id=22806627)\t100%; charged", "22806627"),
    (" sleep 0 (sleep prevented by powerd, SecretApp)", "secret"),
    ('    DestinationMountPoint = "/Volumes/Time Machine of Grace";', "grace"),
    ("via http://grace:hunter2@proxy:8080/x", "hunter2"),
    ("via http://grace:hunter2@proxy:8080/x", "grace"),
    ("Authorization: Bearer hf_AbCdEfGhIjKlMnOpQrStUvWxYz", "AbCdEf"),
    ("Jose\u0301s Mac", "jos"),
    ("王小明's Mac", "王"),
]


@pytest.mark.parametrize(("text", "secret"), PERSONAL)
def test_nothing_personal_stays(text: str, secret: str) -> None:
    names = ("Ada-Lovelaces-MacBook-Pro", "ada", "Josés Mac", "王小明")
    assert secret.lower() not in redacted(text, names=names).lower()


@pytest.mark.parametrize("name", READ)
def test_a_published_output_is_read_alike_without_what_is_personal(name: str) -> None:
    read, expected = READ[name]
    assert read(redacted((CAPTURED / name).read_text(encoding="utf-8"), names=("Grace Hopper", "grace"))) == expected


def test_times_and_versions_are_no_addresses() -> None:
    text = "0   18:10:49 1-02:03:04 12:59.99 macOS 26.5.2 25F84 0x100002dbd 2026-12-01 13:31:39"
    assert redacted(text) == text


def test_the_person_s_full_name_is_one_of_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pwd.struct_passwd(("grace", "x", 501, 20, "Grace Brewster Hopper,,,", "/Users/grace", "/bin/zsh"))
    monkeypatch.setattr("workers.machine.recording.pwd.getpwuid", lambda uid: entry)
    assert {"Grace Brewster Hopper", "Brewster"} <= set(personal_names())


def test_what_the_parsers_need_stays() -> None:
    text = '"accumulatedGPUTime" = 123\n"IOUserClientCreator" = "pid 512, Safari"\nvm.swapusage: used = 12.50M'
    kept = redacted(text, names=("ada",))
    assert '"accumulatedGPUTime" = 123' in kept
    assert '"pid 512, ' in kept
    assert "used = 12.50M" in kept


def test_programs_of_the_user_are_not_named() -> None:
    listed = (
        "  101   0:01.20 /System/Library/mds_stores\n  512   1:02.00 /Applications/Diary.app/Contents/MacOS/Diary\n"
    )
    system = Recording(Recorded(platform="darwin", commands={"ps -A -o pid= -o time= -o comm=": listed}), names=())
    assert system.run("ps", "-A", "-o", "pid=", "-o", "time=", "-o", "comm=") == listed
    (answer,) = system.answers
    assert "mds_stores" in str(answer.found)
    assert "Diary" not in str(answer.found)


def test_answers_are_given_again_in_their_order() -> None:
    machine = Recorded(platform="darwin", commands={"vm_stat": "first"}, notifications={"key": 3})
    system = Recording(machine, names=())
    assert system.run("vm_stat") == "first"
    machine.commands = {"vm_stat": "second"}
    assert system.run("vm_stat") == "second"
    assert system.notify_state("key") == 3
    with pytest.raises(Unreadable, match="is not installed"):
        system.run("pmset", "-g")
    again = Replayed("darwin", from_values(as_values(system.answers)))
    assert [again.run("vm_stat") for _ in range(3)] == ["first", "second", "second"]
    assert again.notify_state("key") == 3
    with pytest.raises(Unreadable, match="is not installed"):
        again.run("pmset", "-g")
    with pytest.raises(Unreadable, match="does not hold"):
        again.run("sysctl", "hw.memsize")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:01.25\n", 1.25), ("00:01:02", 62), ("1-02:03:04", 93784), ("  3:04:05", 11045), ("12:59.99", 779.99)],
)
def test_the_time_that_ps_prints(text: str, seconds: float) -> None:
    assert parse_ps_time(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-", "1:2:3:4", "soon"])
def test_another_text_is_no_time(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_ps_time(text)


def test_two_sources_agree_within_their_tolerance() -> None:
    assert compared("x", 1.0, 1.09, unit="s", within=0.1).result == AGREES
    assert compared("x", 1.0, 1.2, unit="s", within=0.1).result == DISAGREES
    assert same("x", 2, 2).result == AGREES
    assert same("x", 2, 3).result == DISAGREES
