#!/bin/sh
# Makes a golden directory with the code of the current directory: sh tests/golden/make.sh PYTHON DESTINATION
# format1 was made at commit 60c0783 (release 0.1.0), format2 by the first version that names its formats.
# It holds a sweep of four finished trials with its ledger, an archive of them, and a run that was killed.
set -eu
python=$1 out=$2
export OMP_NUM_THREADS=1
mkdir -p "$out"
small="num_workers=6 cohort_size=2 local_steps=1 model.name=resnet20 model.width=1 trainer.enable_progress_bar=false"
cat > "$out/golden.yaml" <<YAML
name: golden
method: grid
metric: {name: test/top_accuracy, goal: maximize}
parameters:
  algorithm.name: {values: [fedavg, gradma]}
  seed: {values: [0, 1]}
  num_rounds: {value: 2}
  cohort_size: {value: 2}
  local_steps: {value: 1}
  model.name: {value: resnet20}
  model.width: {value: 1}
command: ["\${env}", "\${interpreter}", -m, fl_platform, run, --skip-finished, --continue,
  checkpoint.keep_finished=false, output.dir=golden_runs, tracking.mode=offline, "\${args_no_hyphens}"]
YAML
home=$(pwd)
cd "$out"
export PYTHONPATH="$home"
"$python" -m fl_platform sweep run golden.yaml --in-process
"$python" -m fl_platform run $small num_rounds=6 algorithm.name=gradma algorithm.memory_size=4 checkpoint.every=4 \
  output.dir=killed tracking.mode=disabled
"$python" - <<PYTHON
try:
    from fl_platform.runs.archive import write
    from fl_platform.runs.sources import read
    records = read(["golden_runs"])
except ImportError:  # release 0.1.0
    from fl_platform.reporting.archive import write
    from fl_platform.reporting.runs import merge, read_source
    records = merge(read_source("golden_runs"))
from pathlib import Path
write(records, Path("runs.parquet"))
PYTHON
# as a kill during round 6 leaves it
rm killed/*/result.json killed/*/attempts/0001/checkpoints/round-000006-*.ckpt
for rounds in killed/*/attempts/0001/rounds.jsonl; do head -5 "$rounds" > cut && mv cut "$rounds"; done
rm -rf golden_runs/wandb golden_runs/.cache golden_runs/sweeps/*/logs killed/wandb golden_runs/sweeps/*/launchers
