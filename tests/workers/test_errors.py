"""Faults are classified by the messages of the system and the engines."""

import signal

import pytest

from workers.errors import EngineError, FaultKind, classify, classify_text, describe_exit

METAL = (
    "libc++abi: terminating due to uncaught exception: [METAL] Command buffer execution failed: {words} ({code}:{name})"
)


@pytest.mark.parametrize(
    ("code", "words", "name", "kind"),
    [
        ("00000002", "Caused GPU Timeout Error", "kIOGPUCommandBufferCallbackErrorTimeout", FaultKind.gpu_timeout),
        (
            "0000000e",
            "Impacting Interactivity",
            "kIOGPUCommandBufferCallbackErrorImpactingInteractivity",
            FaultKind.gpu_interactivity,
        ),
        (
            "00000004",
            "Ignored (for causing prior/excessive GPU errors)",
            "kIOGPUCommandBufferCallbackErrorSubmissionsIgnored",
            FaultKind.gpu_submissions_ignored,
        ),
        ("00000008", "Insufficient Memory", "kIOGPUCommandBufferCallbackErrorOutOfMemory", FaultKind.out_of_memory),
    ],
)
def test_metals_causes_are_different_kinds(code: str, words: str, name: str, kind: FaultKind) -> None:
    text = METAL.format(code=code, words=words, name=name)
    assert classify_text(text) is kind
    assert classify(RuntimeError(text), default=FaultKind.generation_failed) is kind


@pytest.mark.parametrize(
    "text",
    [
        "[malloc] Unable to allocate 137438953472 bytes.",
        "[metal::malloc] Attempting to allocate 9663676416 bytes which is greater than the maximum allowed buffer size",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_failed_allocations_are_out_of_memory(text: str) -> None:
    assert classify_text(text) is FaultKind.out_of_memory


def test_other_words_name_no_kind() -> None:
    assert classify_text("Segmentation fault: 11") is None
    assert classify(RuntimeError("shapes differ"), default=FaultKind.load_failed) is FaultKind.load_failed


def test_an_error_that_knows_its_kind_keeps_it() -> None:
    error = EngineError(FaultKind.tokenizer_mismatch, "draft D reads text otherwise", remedy="choose another draft")
    assert classify(error, default=FaultKind.load_failed) is FaultKind.tokenizer_mismatch
    assert str(error) == "draft D reads text otherwise; choose another draft"
    assert classify(MemoryError(), default=FaultKind.load_failed) is FaultKind.out_of_memory


@pytest.mark.parametrize(
    ("returncode", "words"),
    [
        (0, "exit status 0"),
        (3, "exit status 3"),
        (-signal.SIGSEGV, "signal 11 (SIGSEGV)"),
        (-signal.SIGKILL, "signal 9 (SIGKILL); the system does this when memory runs out"),
        (-250, "signal 250 (unknown)"),
    ],
)
def test_an_end_is_reported_in_words(returncode: int, words: str) -> None:
    assert describe_exit(returncode) == words
