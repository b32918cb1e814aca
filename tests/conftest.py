"""Shared by all tests: pytest rewrites the engine contract's assertions, registered before anything imports it."""

import pytest

pytest.register_assert_rewrite("tests.workers.engine_contract")
