"""Shared by all tests. The contract's assertions are rewritten by pytest as a test module's are; before anything imports it."""

import pytest

pytest.register_assert_rewrite("tests.workers.engine_contract")
