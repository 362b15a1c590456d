"""The extension needs torch's libraries loaded."""

import torch  # noqa: F401
