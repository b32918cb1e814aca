"""The contract's assertions are rewritten by pytest as a test module's are."""

import pytest

pytest.register_assert_rewrite("tests.workers.engine_contract")
