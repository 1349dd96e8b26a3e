"""Many runs from one W&B sweep YAML: proposals, ledger, launcher, pools of processes, Ray."""
