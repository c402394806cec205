"""The place of the user's profiles, and the environment's variables that choose a cluster.

Apart from `profiles`, whose library takes as long to load as a shell may take to complete a word: most users have no
such file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import platformdirs

CONFIG_VARIABLE: Final = "POK_CONFIG"
"""The environment's variable that names another file."""
URL_VARIABLE: Final = "POK_URL"
"""The environment's variable with the URL of the Kafka cluster, for `pok` and for unchanged programs."""
PROFILE_VARIABLE: Final = "POK_PROFILE"
"""The environment's variable that names a profile, for `pok` and for unchanged programs."""


def profile_file() -> Path:
    """The file of POK_CONFIG, else config.toml in the user's directory for `pok`."""
    named = os.environ.get(CONFIG_VARIABLE, "")
    return Path(named) if named else platformdirs.user_config_path("pok", appauthor=False) / "config.toml"
