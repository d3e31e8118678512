"""A plugin of pytest: skips what the list leaves out, so that the report names it.

pytest's own --deselect says nothing of a name that no longer exists. WEIR_LEFT_OUT is a JSON object: `tests` are node
ids, `markers` names of markers.
"""

import json
import os

import pytest

# The runner tells these skips from the suite's own by this text.
REASON = "left out by the list"


def pytest_collection_modifyitems(items):
    left_out = json.loads(os.environ["WEIR_LEFT_OUT"])
    for item in items:
        is_named = item.nodeid in left_out["tests"]
        if is_named or any(item.get_closest_marker(name) for name in left_out["markers"]):
            # First, so that no other skip of the suite hides it.
            item.add_marker(pytest.mark.skip(reason=REASON), append=False)
