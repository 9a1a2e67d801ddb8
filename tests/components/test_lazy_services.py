"""Google's message types are imported without the clients of all services."""

import subprocess
import sys

PROGRAM = """
import sys
import components
from google.cloud.aiplatform_v1 import types
few = [name for name in sys.modules if name.endswith("_service.client")]
import google.cloud.aiplatform_v1
assert google.cloud.aiplatform_v1.CustomJob is types.CustomJob
try:
    google.cloud.aiplatform_v1.absent
except AttributeError as error:
    print(len(few), error)
"""


def test_package_is_complete_once_another_name_is_used():
    shown = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    expected = "0 module 'google.cloud.aiplatform_v1' has no attribute 'absent'\n"
    assert shown.stdout == expected, shown.stderr
