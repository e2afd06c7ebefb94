import subprocess
import sys


def test_the_test_kit_needs_no_test_tools() -> None:
    """pytest and Hypothesis are not installed with Logline; only the conformance suite asks for them."""
    code = "import sys, logline.testing; sys.exit(bool({'pytest', 'hypothesis'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
