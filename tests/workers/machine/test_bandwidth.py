import pytest

from workers.machine.bandwidth import published_gb_per_s


@pytest.mark.parametrize(
    ("chip", "gpu_cores", "expected"),
    [
        ("Apple M1", 8, 68.25),
        ("Apple M1", None, 68.25),
        ("Apple M2 Ultra", 76, 800),
        ("Apple M3 Max", 30, 300),
        ("Apple M3 Max", 40, 400),
        ("Apple M4 Max", 40, 546),
        ("Apple M5 Pro", 20, 307),
    ],
)
def test_published_figures(chip: str, gpu_cores: int | None, expected: float) -> None:
    assert published_gb_per_s(chip, gpu_cores) == (expected, "published by Apple")


@pytest.mark.parametrize(
    ("chip", "gpu_cores", "why"),
    [
        ("Apple M4 Max", None, "an unknown number of GPU cores"),
        ("Apple M4 Max", 38, "38 GPU cores name none"),
        ("Apple M5 Ultra", 80, "no published figure"),
        ("Apple M9", 10, "no published figure"),
        ("Intel(R) Xeon(R) Processor", None, "not an Apple chip"),
        (None, None, "this chip"),
    ],
)
def test_unknown_stays_unknown(chip: str | None, gpu_cores: int | None, why: str) -> None:
    found, reason = published_gb_per_s(chip, gpu_cores)
    assert found is None
    assert why in reason
