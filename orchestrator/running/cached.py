"""Did a conversation begin with tokens from a cache that nobody asked for? Pure.

Every conversation of a run is meant to begin afresh. A server that keeps prompts from one request to the next answers a
repeated prompt at once: its time to the first token is then the cache's, not the engine's. The rule is fixed in the
plan and looks at the engine's own count of cached tokens, at no speed.
"""

from collections.abc import Iterable

from orchestrator.plan import Prompt
from workers.protocol import Generation

KIND = "cached_prompt"
_REMEDY = (
    "set engine.prefix_cache=false, or start an attached server without its prompt cache; "
    "design.cached_share_max=null measures it all the same"
)


def from_cache(generations: Iterable[tuple[Prompt, Generation]], *, share_max: float | None) -> str | None:
    """The first generation that had more of its prompt from a cache than its conversation explains, as `code: words`.

    A first turn explains none; a later one the prompt and the answer of the turn before.

    Args:
        share_max: of the prompt's tokens, the share that may come from a cache unexplained: chat templates begin alike.
            None: any.
    """
    if share_max is None:
        return None
    explained: dict[str, int] = {}
    for prompt, generation in generations:
        own = 0 if generation.turn == 0 else explained.get(prompt.id, 0)
        surplus = (generation.cached_tokens or 0) - own
        if surplus > share_max * generation.prompt_tokens:
            return f"{KIND}: {_words(prompt, generation)}; {_REMEDY}"
        explained[prompt.id] = generation.prompt_tokens + generation.tokens
    return None


def _words(prompt: Prompt, generation: Generation) -> str:
    counts = f"{generation.cached_tokens} of {generation.prompt_tokens} prompt tokens"
    if generation.turn == 0:
        return f"prompt {prompt.id}: the conversation began with {counts} from a cache"
    return f"prompt {prompt.id}: turn {generation.turn + 1} had {counts} from a cache, more than its conversation holds"
