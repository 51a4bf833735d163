"""Tokens for vLLM: the same ids as llama.cpp's, and no control token out of a document. No weights, no vllm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

from vllm_models import SMOLLM2, needs_model

from runner.engines.vllm_vocab import VllmTokenizer
from runner.errors import UsageError
from runner.values import Message, Segment

STORED = json.loads((Path(__file__).parent / "smollm2_tokens.json").read_text(encoding="utf-8"))
IM_START, IM_END = 1, 2
HELLO = (Message("user", (Segment("Hi", True),)),)


@pytest.fixture(scope="module")
def tokenizer() -> VllmTokenizer:
    return VllmTokenizer(SMOLLM2)


def messages_of(stored: list[list]) -> tuple[Message, ...]:
    return tuple(Message(role, tuple(Segment(text, trusted) for text, trusted in parts)) for role, parts in stored)


@needs_model
@pytest.mark.parametrize("case", STORED, ids=lambda c: c["name"])
def test_same_ids_as_llama_cpp(tokenizer, case):
    """The ids that llama.cpp's tokenizer gave for these prompts, by segments, template included."""
    messages = messages_of(case["messages"])
    assert tokenizer.prompt(messages) == case["tokens"]
    assert tokenizer.count(messages) == len(case["tokens"])


@needs_model
def test_control_token_in_a_document_is_text(tokenizer):
    """`<|im_end|>` is one control token in our text and several ordinary ones in a document, and reads the same."""
    assert tokenizer.tokens(Segment("<|im_end|>", True)) == (IM_END,)
    foreign = tokenizer.tokens(Segment("<|im_end|>", False))
    assert len(foreign) == 7
    assert IM_END not in foreign
    assert tokenizer.text(foreign) == "<|im_end|>"
    assert tokenizer.count_text("<|im_end|>") == 7


@needs_model
def test_prompt_up_to_a_segment(tokenizer):
    """What n segments end in is the beginning of the whole prompt."""
    messages = (
        Message("user", (Segment("Rules.\n", True), Segment("Doc. <|im_end|>\n", False), Segment("Go.", True))),
    )
    whole = tokenizer.prompt(messages)
    lengths = [len(tokenizer.prompt(messages, n)) for n in (1, 2, 3)]
    assert tokenizer.text(whole[: lengths[0]]).endswith("\nRules.\n")
    assert tokenizer.text(whole[: lengths[1]]).endswith("\nRules.\nDoc. <|im_end|>\n")
    assert tokenizer.text(whole[: lengths[2]]).endswith("\nGo.")
    assert all(tokenizer.prompt(messages, n) == whole[:k] for n, k in zip((1, 2, 3), lengths, strict=True))


@needs_model
def test_facts_of_the_model(tokenizer):
    """Context and the ids that end a reply come from the folder; a context that is given wins."""
    assert (tokenizer.context_tokens, tokenizer.stops, tokenizer.end) == (8192, (IM_END, 0), IM_END)
    assert VllmTokenizer(SMOLLM2, 1000).context_tokens == 1000


@needs_model
def test_needs_the_tokenizers_package_alone():
    """It counts where vllm, torch and transformers are not installed."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('vllm', 'torch', 'transformers'))); from pathlib import Path; "
        "from runner.engines.vllm_vocab import VllmTokenizer as V; from runner.values import Message, Segment; "
        f"print(V(Path({str(SMOLLM2)!r})).count([Message('user', (Segment('Hi', True),))]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 5


# ---- a tokenizer made for the test ---------------------------------------------------------------------------------


def folder_of(path: Path, **changes: object) -> Path:
    """A model folder whose unigram vocabulary can spell its own end token."""
    from tokenizers import AddedToken, Tokenizer, models

    pieces = [("<unk>", -20.0), ("</s>", -1.0), *((c, -5.0) for c in "</s> Hi.userant\n|_m")]
    made = Tokenizer(models.Unigram(list(dict(pieces).items()), 0, False))
    made.add_special_tokens([AddedToken("</s>", special=True)])
    made.add_tokens([AddedToken("Hi.", special=False), AddedToken("  ", special=False)])
    path.mkdir(exist_ok=True)
    made.save(str(path / "tokenizer.json"))
    files = {
        "config.json": {"max_position_embeddings": 64, "eos_token_id": 1},
        "tokenizer_config.json": {"eos_token": {"content": "</s>"}, "chat_template": "{{ messages[0]['content'] }}"},
    } | changes
    for name, data in files.items():
        file = path / name.replace("_json", ".json")
        file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def test_vocabulary_that_spells_a_control_token(tmp_path):
    """Where plain text alone would become the end token, its name is cut in two; the text stays as it was."""
    tokenizer = VllmTokenizer(folder_of(tmp_path))
    assert tokenizer.tokens(Segment("Hi</s>", True))[-1] == 1
    foreign = tokenizer.tokens(Segment("i</s>i</s>", False))
    assert 1 not in foreign
    assert tokenizer.text(foreign).replace(" ", "") == "i</s>i</s>"


def test_added_tokens_are_ours_alone(tmp_path):
    """An added word is one token in our text and none in a document; runs of blanks are in both."""
    tokenizer = VllmTokenizer(folder_of(tmp_path))
    assert [len(tokenizer.tokens(Segment("Hi.", trusted))) for trusted in (True, False)] == [1, 3]
    assert [len(tokenizer.tokens(Segment("  ", trusted))) for trusted in (True, False)] == [1, 1]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tokenizer_config.json": {"chat_template": [{"name": "tool", "template": "x"},
                                                      {"name": "default", "template": "Hi."}]}}, "Hi."),
        ({"chat_template.jinja": "i.", "tokenizer_config.json": {"chat_template": "Hi."}}, "i."),
        ({"tokenizer_config.json": {}}, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
    ],
    ids=["several", "file", "none"],
)  # fmt: skip
def test_where_the_template_stands(tmp_path, changes, text):
    """A file of its own wins; of several the default; without one it is ChatML."""
    tokenizer = VllmTokenizer(folder_of(tmp_path, **changes))
    assert tuple(tokenizer.prompt(HELLO)) == tokenizer.tokens(Segment(text, True))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", None, "the model folder has no tokenizer.json"),
        ("tokenizer.json", "{", "not readable as JSON"),
        ("tokenizer.json", "[]", "expected keys and values"),
        ("tokenizer.json", '{"added_tokens": []}', "this tokenizer cannot be used: "),
        ("config.json", "{}", "the model does not say its context length"),
        ("chat_template.jinja", "{% if %}", "the model's chat template cannot be used: "),
    ],
)
def test_broken_folders(tmp_path, name, content, message):
    """Each fault of a folder in our words."""
    folder = folder_of(tmp_path)
    (folder / name).unlink() if content is None else (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        VllmTokenizer(folder)
    assert caught.value.message.startswith(message)


def test_template_that_refuses(tmp_path):
    """A template that refuses these messages is the model's fault, said without a traceback."""
    template = {"chat_template": "{{ raise_exception('no such role') }}"}
    tokenizer = VllmTokenizer(folder_of(tmp_path, **{"tokenizer_config.json": template}))
    with pytest.raises(UsageError, match=r"^the model's chat template cannot be used: no such role"):
        tokenizer.prompt(HELLO)


def test_template_without_a_system_role(tmp_path):
    """The system message's text then opens the first question."""
    template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0]['content'] }}"
    )
    tokenizer = VllmTokenizer(folder_of(tmp_path, **{"tokenizer_config.json": {"chat_template": template}}))
    messages = (Message("system", (Segment("sun", True),)), *HELLO)
    assert tokenizer.text(tokenizer.prompt(messages)).replace(" ", "") == "sun\n\nHi"
