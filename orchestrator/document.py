"""x."""
def two_turn_messages(*, tokens: int, seed: int) -> list[tuple[dict[str, str], ...]]:
    return [({"role": "user", "content": "x"},)]
