from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.cli.commands import PATIENCE, holdfast

SHELLS = {"bash": ["-n"], "zsh": ["-n"], "fish": ["--no-execute"]}


@pytest.fixture(scope="module")
def script() -> str:
    return holdfast("completion", "bash").out


def offered(script: str, *words: str) -> set[str]:
    """The completions of bash for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f'{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _holdfast; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=PATIENCE, check=True)  # noqa: S603, S607 - the shell under test
    assert done.stderr == ""
    return set(done.stdout.split())


def test_commands_and_options(script: str) -> None:
    running = {"demo", "worker", "dev", "tick", "serve", "top"}
    looking = {"jobs", "queues", "events", "runners", "archive", "retention", "tokens", "move", "import-outbox"}
    commands = running | looking | {"migrate", "capacity", "check", "completion"}
    assert offered(script, "holdfast", "") == commands | {"-h", "--help", "--version"}
    assert offered(script, "holdfast", "queues", "") >= {"list", "pause", "resume", "set", "drain"}
    assert offered(script, "holdfast", "tokens", "make", "--role", "") == {"viewer", "operator", "developer"}
    assert offered(script, "holdfast", "jobs", "retry", "--status", "f") == {"failed"}
    assert offered(script, "holdfast", "serve", "--jwt-") == {
        "--jwt-issuer",
        "--jwt-audience",
        "--jwt-keys",
        "--jwt-role-claim",
    }
    assert offered(script, "holdfast", "top", "--theme", "") == {"dark", "light"}
    assert offered(script, "holdfast", "c") == {"capacity", "check", "completion"}
    acting = {"retry", "cancel", "delete", "resume-key"}
    assert offered(script, "holdfast", "jobs", "") == acting | {"list", "show", "-h", "--help"}
    assert offered(script, "holdfast", "jobs", "list", "--o") == {"--order-key"}
    assert offered(script, "holdfast", "jobs", "list", "--status", "p") == {"pending", "processing"}
    assert offered(script, "holdfast", "jobs", "list", "--kind", "") == set()
    assert offered(script, "holdfast", "jobs", "delete", "7", "--y") == {"--yes"}
    assert offered(script, "holdfast", "worker", "shop:app", "--log-format", "") == {"auto", "human", "json"}
    assert offered(script, "holdfast", "runners", "p") == {"pause"}
    assert offered(script, "holdfast", "completion", "") >= {"bash", "zsh", "fish"}


def test_what_is_for_ourselves_is_not_offered(script: str) -> None:
    assert "--supervised" not in script


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_everything(shell: str, script: str) -> None:
    said = holdfast("completion", shell)
    assert (said.status, said.err) == (0, "")
    for word in set(re.findall(r"--([a-z-]+)", script)) | {"retry", "trigger", "pending"}:
        assert word in said.out
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, *SHELLS[shell]], input=said.out, text=True, timeout=PATIENCE, check=True)  # noqa: S603 - the shell under test


def test_another_shell() -> None:
    said = holdfast("completion", "csh")
    assert said.status == 2
    assert "expected one of bash, zsh, fish, got csh" in said.err
