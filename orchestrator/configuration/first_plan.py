"""The overrides that answer a newcomer's question. Pure.

bits        one model at several bits            checkpoint=A,B
draft       with and without a way of drafting   checkpoint=A engine=mlx_lm,mlx_lm_draft
setting     a setting at several values          checkpoint=A engine=E KEY=1,2,3
engine      one model in several engines         checkpoint=A engine=mlx_lm,mlx_lm_server
version     two environments                     checkpoint=A environment=current,mlx-lm==0.31.3
                                                 checkpoint=A engine.python=null,/path/bin/python
servers     servers that run already             engine=ollama,lm_studio engine.model=M
quickstart  the shipped first experiment         sweep=quickstart
"""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import InputError

QUESTIONS = {
    "bits": "Which bits of a model are fast enough, as 4 against 8?",
    "draft": "Does a draft make a model faster?",
    "setting": "Which value of a setting is fastest?",
    "engine": "Which engine runs a model fastest?",
    "version": "Which release of MLX, of mlx-lm or of an engine is faster?",
    "servers": "Which of the servers that run already is faster?",
    "quickstart": "Show me one: a small model at 8 and 4 bits, and with a draft.",
}
TIMES = {
    "quick": ("minutes: three short prompts", ("workload=quick", "design=quick")),
    "evening": ("an evening: five prompts, the verdict is sharper", ("workload=five_prompts",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answers to a question's own questions; empty: not answered."""

    checkpoints: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    setting: str = ""  # as engine.block_size=2,4,8
    environments: tuple[str, ...] = ()  # as mlx-lm==0.31.3; one alone is compared with the current one
    pythons: tuple[str, ...] = ()  # interpreters of environments that were made elsewhere, instead
    model: str = ""  # as servers name it


# By question: the flag of each answer that it needs, with how many values.
NEEDS: dict[str, tuple[tuple[str, int], ...]] = {
    "bits": (("checkpoint", 2),),
    "draft": (("checkpoint", 1),),
    "setting": (("checkpoint", 1), ("engine", 1), ("setting", 1)),
    "engine": (("checkpoint", 1), ("engine", 2)),
    "version": (("checkpoint", 1), ("environment", 1)),
    "servers": (("engine", 1), ("model", 1)),
    "quickstart": (),
}


def overrides_for(question: str, answers: Answers, *, time: str) -> list[str]:
    """The override line of a question.

    Raises:
        InputError: an answer is missing; the message names its flag.
    """
    given = {
        "checkpoint": answers.checkpoints,
        "engine": answers.engines,
        "setting": (answers.setting,) if answers.setting else (),
        "environment": answers.environments or answers.pythons,
        "model": (answers.model,) if answers.model else (),
    }
    for flag, count in NEEDS[question]:
        if len(given[flag]) < count:
            other = " or --python" if flag == "environment" else ""
            what = f"--{flag}{other}" if count == 1 else f"--{flag} at least {count} times"
            raise InputError(f"start --question {question}: needs {what}")
    if question == "quickstart":
        return ["sweep=quickstart"]
    lines = _lines(question, answers)
    return [*lines, *TIMES[time][1]]


def _lines(question: str, answers: Answers) -> list[str]:
    checkpoint = f"checkpoint={_joined(answers.checkpoints)}"
    if question == "bits":
        return [checkpoint, *_engine(answers.engines), "sampling.ignore_eos=true"]
    if question == "draft":
        return [checkpoint, f"engine={_joined(('mlx_lm', *(answers.engines or ('mlx_lm_draft',))))}"]
    if question == "setting":
        return [checkpoint, *_engine(answers.engines), answers.setting]
    if question == "version" and answers.environments:
        named = answers.environments if len(answers.environments) > 1 else ("current", *answers.environments)
        return [checkpoint, *_engine(answers.engines), f"environment={_joined(named)}"]
    if question == "version":
        return [checkpoint, *_engine(answers.engines), f"engine.python={_joined(('null', *answers.pythons))}"]
    if question == "servers":
        served = [checkpoint] if answers.checkpoints else []
        return [f"engine={_joined(answers.engines)}", f"engine.model={_quoted(answers.model)}", *served]
    return [checkpoint, *_engine(answers.engines)]


def _engine(engines: Sequence[str]) -> list[str]:
    return [f"engine={_joined(engines)}"] if engines else []


def _joined(values: Sequence[str]) -> str:
    return ",".join(_quoted(value) for value in values)


def _quoted(value: str) -> str:
    """The value as the override line takes it: quoted if it holds what separates values."""
    return f"'{value}'" if any(letter in value for letter in ",' =(){}[]:") and "'" not in value else value
