"""A picture of the explorer's page, by a headless Chromium, of the database that INTERLACE_DB names.

python docs/explorer_picture.py docs/images/explorer.png            the first page
python docs/explorer_picture.py verdicts.png /interlace/verdicts    another
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

SIZE = "1280,900"
BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)


def main() -> None:
    target, page = Path(sys.argv[1]).absolute(), sys.argv[2] if len(sys.argv) > 2 else "/interlace"
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit(f"no browser: install one of {', '.join(BROWSERS[:3])}")
    command = [sys.executable, "-m", "orchestrator", "explore", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as explorer:
        assert explorer.stdout is not None
        found = next((match for line in explorer.stdout if (match := re.search(r"http://[\d.]+:\d+", line))), None)
        if found is None:
            sys.exit(f"the explorer did not start: exit code {explorer.wait()}")
        # Without a sandbox: it is shown our own pages only, and containers have none.
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}", f"--screenshot={target}"]
        subprocess.run([browser, *options, found[0] + page], check=True, capture_output=True, timeout=120)
        explorer.terminate()


if __name__ == "__main__":
    main()
