"""Databases by name: what is refused, what is shown, and which database a key belongs to."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Databases, Holdfast, HoldfastError, Settings, SettingsError, by_key
from holdfast._model.databases import databases_of
from holdfast._model.scheme import ADDRESS_SHAPE, scheme_problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

EU = "postgresql://app:hunter2@eu.internal/shop"
US = "postgresql://app:hunter2@us.internal/shop"
BOTH = {"eu": EU, "us": US}
SHAPE = "a lowercase letter, then at most 62 lowercase letters, digits, _ or -"

NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9_-]{0,62}", fullmatch=True), min_size=1, max_size=12, unique=True)


def made(names: Sequence[str], draining: Sequence[str] = ()) -> Databases:
    return Databases({name: f"postgresql://{name}.internal/shop" for name in names}, draining=draining)


def problems(addresses: Mapping[Any, Any], **options: Any) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as refused:
        Databases(addresses, **options)
    assert "hunter" not in str(refused.value)
    return refused.value.problems


def test_it_is_a_mapping_that_does_not_show_addresses() -> None:
    databases = Databases(BOTH, draining=["us"])
    assert dict(databases) == BOTH
    assert (databases.names, databases.placeable) == (("eu", "us"), ("eu",))
    assert databases.draining == frozenset({"us"})
    assert databases.first == EU
    assert repr(databases) == str(databases) == f"{databases}" == "Databases(eu, us (draining))"
    assert "hunter" not in repr(vars(Holdfast(databases)))


def test_equal_means_the_same_addresses_in_the_same_order() -> None:
    assert Databases(BOTH) == Databases(BOTH)
    assert hash(Databases(BOTH)) == hash(Databases(BOTH))
    assert Databases(BOTH) != Databases({"us": US, "eu": EU}), "the first has the runners of the application"
    assert Databases(BOTH) != Databases(BOTH, draining=["us"])
    assert Databases(BOTH) != BOTH
    assert pickle.loads(pickle.dumps(Databases(BOTH, draining=["eu"]))) == Databases(BOTH, draining=["eu"])  # noqa: S301


def test_later_changes_of_the_mapping_do_not_count() -> None:
    given = dict(BOTH)
    databases = Databases(given)
    del given["us"]
    assert len(databases) == 2


@pytest.mark.parametrize(
    ("addresses", "output"),
    [
        ({}, 'expected at least one database, such as {"eu": "postgresql://…", "us": "postgresql://…"}'),
        (
            {"EU": EU},
            f"the name of a database must be {SHAPE}, not 'EU'",
        ),
        ({"eu": EU, "us": EU}, "us: eu is the same database"),
        (
            {"eu": EU, "us": "postgresql://other:hunter3@eu.internal/shop?sslmode=require"},
            "us: eu is the same database",
        ),
        (
            {"eu": "mysql://app:hunter2@eu/shop"},
            f"eu: the address {scheme_problem('mysql://')}",
        ),
        (
            {"eu": "hunter2"},
            f"eu: the address has no scheme: it must look like {ADDRESS_SHAPE}",
        ),
        (
            {"eu": ""},
            f"eu: expected an address such as {ADDRESS_SHAPE}, got str",
        ),
        (
            {"eu": 5},
            f"eu: expected an address such as {ADDRESS_SHAPE}, got int",
        ),
    ],
)
def test_what_cannot_be_is_refused(addresses: Mapping[Any, Any], output: str) -> None:
    assert problems(addresses) == (output,)


@pytest.mark.parametrize("name", [EU, "", "-eu", "9", "e" * 64, "e\n", "é", "password=hunter2", 7, None])
def test_a_name_is_a_short_word(name: Any) -> None:
    (output,) = problems({name: EU})
    assert output.startswith("the name of a database must be a lowercase letter, ")


def test_draining_names_must_be_there_and_not_all() -> None:
    assert problems(BOTH, draining=["eu", "asia"]) == ("draining: 'asia' is not one of the databases",)
    assert problems(BOTH, draining=["us", "eu"]) == ("draining: at least one database must take new keys",)


@pytest.mark.parametrize(
    ("arguments", "options", "output"),
    [
        ((EU,), {}, 'Databases: expected a mapping such as {"eu": "postgresql://…", "us": "postgresql://…"}, got str'),
        ((BOTH,), {"draining": "us"}, 'draining: expected a list of names such as ["us"], got str'),
        ((BOTH,), {"place": "by_key"}, "place: expected a function of a key and names, such as by_key, got str"),
    ],
)
def test_wrong_types(arguments: tuple[Any, ...], options: dict[str, Any], output: str) -> None:
    with pytest.raises(TypeError) as refused:
        Databases(*arguments, **options)
    assert str(refused.value) == output


def test_a_key_is_text() -> None:
    with pytest.raises(TypeError, match=r"expected a key as text, such as str\(customer_id\), got int"):
        Databases(BOTH).place(7)  # type: ignore[arg-type]


def test_a_function_of_ones_own() -> None:
    def by_region(key: str, names: Sequence[str]) -> str:
        return key.partition("/")[0] if key.partition("/")[0] in names else names[0]

    databases = Databases(BOTH, place=by_region)
    assert [databases.place(key) for key in ("us/7", "eu/7", "asia/7")] == ["us", "eu", "eu"]
    assert Databases(BOTH, place=by_region, draining=["us"]).place("us/7") == "eu"


def test_a_function_that_names_none_of_them() -> None:
    with pytest.raises(HoldfastError, match="returned 'asia', expected one of eu"):
        Databases(BOTH, place=lambda _key, _names: "asia", draining=["us"]).place("x")


@given(st.text(), NAMES)
def test_a_place_depends_on_nothing_but_the_key_and_the_names(key: str, names: list[str]) -> None:
    assert by_key(key, names) == by_key(key, names[::-1]) in names


@given(st.lists(st.text(), max_size=50), NAMES)
def test_a_new_database_takes_keys_and_moves_no_other(keys: list[str], names: list[str]) -> None:
    before, after = made(names[:-1] or ["only"]), made([*(names[:-1] or ["only"]), "new" + names[-1][:60]])
    for key in keys:
        assert after.place(key) in {before.place(key), after.names[-1]}


@given(st.lists(st.text(), max_size=50), NAMES.filter(lambda names: len(names) > 1))
def test_only_the_keys_of_a_draining_database_move(keys: list[str], names: list[str]) -> None:
    before, after = made(names), made(names, draining=names[:1])
    for key in keys:
        assert after.place(key) != names[0]
        if before.place(key) != names[0]:
            assert after.place(key) == before.place(key)


@pytest.mark.parametrize("count", [2, 4, 7])
def test_the_shares_are_equal_within_a_few_per_cent(count: int) -> None:
    databases = made([f"db{number}" for number in range(count)])
    keys = 20_000
    shares = Counter(databases.place(f"customer-{number}") for number in range(keys))
    assert all(abs(share * count / keys - 1) < 0.06 for share in shares.values())


def test_places_are_the_same_in_every_process_and_version() -> None:
    names = ("eu", "us", "asia")
    assert [by_key(f"customer-{number}", names) for number in range(5, 13)] == PLACES
    code = f"from holdfast import by_key; print([by_key(f'customer-{{n}}', {names!r}) for n in range(5, 13)])"
    environ = os.environ | {"PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)  # noqa: S603 - its own code
    assert output.stdout.strip() == str(PLACES)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "databases.toml", f'eu = "{EU}"\n# soon gone\nus = {{ url = "{US}", draining = true }}\n')
    databases = Databases.read(path)
    assert databases == Databases(BOTH, draining=["us"])
    assert Databases.read(str(path), place=max_name).place("x") == "eu"
    table = write(tmp_path / "tables.toml", f'[eu]\nurl = "{EU}"\n[us]\nurl = "{US}"\ndraining = true\n')
    assert Databases.read(table) == databases


def max_name(_key: str, names: Sequence[str]) -> str:
    return max(names)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("", 'expected at least one database, such as {"eu": "postgresql://…", "us": "postgresql://…"}'),
        (f"eu = {EU}", "not TOML: Invalid value (at line 1, column 6)"),
        ("eu = 'hunter2", None),
        (f'eu = "{EU}"\neu = "{US}"', None),
        ("\x80", None),
        ('eu = { url = "x=1", drain = true }', "eu: expected url and draining, got 'drain'"),
        ('eu = { url = "x=1", draining = "hunter2" }', "eu: draining must be true or false, not str"),
        (
            "eu = { draining = false }",
            f"eu: expected an address such as {ADDRESS_SHAPE}, got None",
        ),
        ('eu = ["hunter2"]', f"eu: expected an address such as {ADDRESS_SHAPE}, got list"),
        (f'eu = {{ url = "{EU}", draining = true }}', "draining: at least one database must take new keys"),
        (f"x = {'[' * 5_000}", None),
        (f"# {'x' * 1_048_576}", "the file is larger than 1 MiB"),
    ],
)
def test_a_file_that_is_refused_names_the_place_and_no_secret(tmp_path: Path, text: str, output: str | None) -> None:
    path = tmp_path / "databases.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError) as refused:
        Databases.read(path)
    (problem,) = refused.value.problems
    assert problem.startswith(f"{path}: {output or 'not TOML: '}")
    assert "hunter" not in str(refused.value)
    below = refused.value.__context__
    assert below is None or refused.value.__suppress_context__, "the error below may have the text of the file"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml: cannot be read: No such file or directory"):
        Databases.read(tmp_path / "none.toml")
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        Databases.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"{EU} {US}", ("shop", "shop-2")),
        (f"eu={EU} us={US}", ("eu", "us")),
        (f"eu={EU}", ("eu",)),
        ("postgresql://h/Café%20No.1", ("caf-no-1",)),
        ("postgresql://h/1st", ("db-1st",)),
        ("postgresql://h/%C3%A9", ("db",)),
        ("postgresql://me@h", ("me",)),
        ("postgresql://h", ("db",)),
        (f"postgresql://h/{'x' * 80} postgresql://i/{'x' * 80}", ("x" * 63, "x" * 61 + "-2")),
        ("host=db dbname=shop password='hunter 2'", ("shop",)),
    ],
)
def test_names_from_the_environment(text: str, names: tuple[str, ...]) -> None:
    databases = databases_of(Settings.load({"HOLDFAST_DATABASE_URL": text}))
    assert databases.names == names


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (f"eu={EU} {US}", "DATABASE_URL must give a name to every address, like eu=postgresql://…, or to none"),
        (f"eu={EU} eu={US}", "DATABASE_URL must use the name eu once"),
        (f"eu={EU} us={EU}", "us: eu is the same database"),
    ],
)
def test_names_from_the_environment_that_are_refused(text: str, output: str) -> None:
    with pytest.raises(SettingsError) as refused:
        databases_of(Settings.load({"DATABASE_URL": text}))
    assert refused.value.problems == (output,)


def test_an_application_has_its_own_or_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", f"a={EU} b={US}")
    assert Holdfast().databases == Databases({"a": EU, "b": US})
    assert Holdfast().url == EU
    assert Holdfast(Databases(BOTH)).databases == Databases(BOTH)
    assert Holdfast(Databases(BOTH)).url == EU
    assert Holdfast(US).databases == Databases({"shop": US})
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", US)
    monkeypatch.setenv("HOLDFAST_DATABASES_FILE", str(write(tmp_path / "d.toml", f'eu = "{EU}"')))
    assert Holdfast().databases == Databases({"eu": EU}), "the file wins over a single address"
    monkeypatch.delenv("HOLDFAST_DATABASES_FILE")
    monkeypatch.delenv("HOLDFAST_DATABASE_URL")
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with pytest.raises(SettingsError, match="no database: give Holdfast an address"):
        _ = Holdfast().databases
    with pytest.raises(SettingsError, match="no database: give Holdfast an address, or set HOLDFAST_DATABASE_URL"):
        _ = Holdfast().url


def test_an_address_that_is_set_later_replaces_them_all() -> None:
    app = Holdfast(Databases(BOTH))
    app.url = US
    assert app.databases == Databases({"shop": US})


def test_a_verb_that_connects_needs_one_of_several() -> None:
    with pytest.raises(SettingsError, match=r"2 databases: name one with url=…, such as url=app\.databases\[name\]"):
        Holdfast(Databases(BOTH)).sync.migrate()


PLACES = ["eu", "eu", "us", "asia", "eu", "asia", "asia", "eu"]
