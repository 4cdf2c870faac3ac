"""Calls side by side whose processes end as they should not."""

import signal

import pytest

from n3ic.errors import N3icError
from n3ic.util.parallel import each


def test_a_worker_that_is_killed_is_one_error():
    with pytest.raises(N3icError, match="a worker process was killed"):
        list(each(signal.raise_signal, [(signal.SIGKILL,)] * 2, jobs=2))
