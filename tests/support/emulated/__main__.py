"""python -m tests.support.emulated FOLDER [NAME ...]: runs the scenarios with inputs made in FOLDER, prints JSON."""

import json
import sys
from pathlib import Path

import torch

from tests.support.emulated.scenarios import run_all

torch.set_num_threads(1)
print("\n" + json.dumps(run_all(Path(sys.argv[1]), sys.argv[2:]), default=str))
