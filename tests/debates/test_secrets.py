"""Credentials: what is found, what is not, and what the text looks like without them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.debates import secrets

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA0Z3VS5JJcds3xfnq\nabcd==\n-----END RSA PRIVATE KEY-----"
WORD = "[redacted: Secret Keyword]"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ('password = "hunter2"', f'password = "{WORD}"'),
        ('a("x"); secret: "one1two2"; b', f'a("x"); secret: "{WORD}"; b'),
        ("PASSWORD=hunter2hunter", f"PASSWORD={WORD}"),
        ("password: correcthorse9 and more", f"password: {WORD} and more"),
        ('aws_key = "AKIAIOSFODNN7EXAMPLE"', 'aws_key = "[redacted: AWS Access Key]"'),
        ("postgres://bob:s3cr3tpw@db.local/x", "postgres://bob:[redacted: Basic Auth Credentials]@db.local/x"),
        ("see ghp_1234567890abcdefghijklmnopqrstuvwxyzAB.", "see [redacted: GitHub Token]."),
        ("sk_live_4eC39HqLyjWDarjtT1zdp7dc", "[redacted: Stripe Access Key]"),
        ("Authorization: Bearer abcxyz-1234567890", "Authorization: Bearer [redacted: Secret Keyword]"),
        ('TOKEN = "abc-xyz-1234"', f'TOKEN = "{WORD}"'),
        (KEY, "\n".join(["[redacted: Private Key]"] * 4)),
        ("x\r\npassword = 'hunter2'\r\ny", f"x\r\npassword = '{WORD}'\r\ny"),
    ],
)
def test_what_is_found(text, redacted):
    """Each credential is replaced, nothing around it, and the lines stay as many; twice is as once."""
    assert secrets.redact(text) == redacted
    assert secrets.redact(redacted) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "The password: is not checked before use.",
        "token = get_token(request)",
        "secret = os.environ['SECRET']",
        'if password == "":',
        'url = "${DB_PASSWORD}"',
        "password = '${DB_PASSWORD1}'",
        "see runner/protocols/brief_replies.py and tests/protocols/test_brief_run.py",
        "bind to 203.0.113.7",
        "def sign_in(name: str, password: str) -> None:",
        "the_name_of_a_function_that_is_rather_long_but_only_words()",
    ],
)
def test_what_is_not(text):
    """Names, references, prose, paths and addresses stay."""
    assert secrets.redact(text) == text


def test_settings_files():
    """In a file of settings a value needs no quotes and no digit; a comment after it stays."""
    text = "password: correct horse battery  # of the test\ndebug: true\npassword_file: null"
    wanted = f"password: {WORD}  # of the test\ndebug: true\npassword_file: null"
    assert secrets.redact(text, name="conf/app.yaml") == wanted
    assert secrets.redact("DB_PASSWORD=correcthorse", name=".env.local") == f"DB_PASSWORD={WORD}"
    assert secrets.redact(text, name="notes.py") == text


def test_known_again():
    """A credential is known where it stands without its name; a word of ordinary prose is not."""
    known = secrets.fingerprints([("a.py", 'password = "hunter2"\nsecret = "letmein"')])
    assert secrets.redact("The value hunter2 (hunter2!) is weak.", known) == f"The value {WORD} ({WORD}!) is weak."
    assert secrets.redact("They said letmein.", known) == "They said letmein."
    assert len(known) == 1 and "hunter2" not in known[0]


def test_reply():
    """A reply is redacted string by string; what stands in a text shown stays, and a cut reply is redacted whole."""
    reply = json.dumps({"quote": "x = 'hunter2 in y'", "problem": 'It says password = "hunter2".', "n": [True, 1]})
    found = json.loads(secrets.redact_reply(reply, (), ()))
    assert found == {"quote": "x = 'hunter2 in y'", "problem": f'It says password = "{WORD}".', "n": [True, 1]}
    assert secrets.redact_reply('{"a":"password=hunter2x', (), ()) == f'{{"a":"password={WORD}'
    shown = 'b = 1\npassword = "hunter2"\n'
    quoted = json.dumps({"quote": 'password = "hunter2"'})
    assert secrets.redact_reply(quoted, (), (shown,)) == quoted


def test_values_keep_checksums():
    """In a record checksums stay, and everything else is redacted."""
    sha = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    record = {"charter_sha256": sha, "files": [{"sha256": sha}], "text": f"hash {sha}"}
    found = secrets.redact_values(record)
    assert found == record | {"text": "hash [redacted: Hex High Entropy String]"}


@given(st.text(alphabet=st.sampled_from("password=:\"'hunter2 \n\r-{}$[]AKIA"), max_size=200))
def test_lines_stay(text):
    """Whatever the text, its lines stay as many, and redacting twice changes nothing more."""
    once = secrets.redact(text)
    assert once.count("\n") == text.count("\n")
    assert secrets.redact(once) == once


def test_long_lines():
    """A credential deep in one endless line is found."""
    text = "x = 1; " * 2000 + 'password = "hunter2"' + "; y = 2" * 2000
    assert secrets.redact(text) == text.replace("hunter2", WORD)


def test_no_network(monkeypatch):
    """Nothing is verified: no socket is ever made."""

    def refuse(*args, **kwargs):
        raise AssertionError("a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert secrets.redact("key AKIAIOSFODNN7EXAMPLE xoxb-123456789012-abcdefABCDEF") != ""


def test_loaded_late():
    """The command line does not load the detectors; importing this module does not either."""
    found = "[m for m in sys.modules if m.startswith(('detect', 'requests'))]"
    code = f"import sys, runner.cli, runner.debates.secrets; print({found})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
