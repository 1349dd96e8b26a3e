"""FedAvg with Flower's simulation on Ray: its FedAvg strategy, one virtual node per worker."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Work, arguments, load
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_parts import accuracy_of, make_network, tensors, train_epoch


@lru_cache(maxsize=1)
def loaded(folder: Path) -> tuple[Work, Any, Any]:
    """The work and its training samples, once per process."""
    torch.set_num_threads(1)
    work = load(folder)
    x, y, _, _ = tensors(work)
    return work, x, y


def client_app(folder: Path) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        from with_flower import loaded  # in the actor, whose copy of this function does not share a cache

        work, x, y = loaded(folder)
        network = make_network(work.network)
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        order = np.random.default_rng().permutation(work.split[context.node_config["partition-id"]])
        train_epoch(network, x, y, work.batch, work.rate, order)
        found = {
            "arrays": ArrayRecord(network.state_dict()),
            "metrics": MetricRecord({"num-examples": len(order)}),
        }
        return Message(content=RecordDict(found), reply_to=message)

    return app


def main() -> None:
    folder, clock = arguments()
    work = load(folder)
    torch.manual_seed(work.seed)
    _, _, test_x, test_y = tensors(work)
    network = make_network(work.network)
    app = ServerApp()

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        network.load_state_dict(arrays.to_torch_state_dict())
        accuracy = accuracy_of(network, test_x, test_y)
        if number:  # 0 is the model before the first round
            clock.tick(accuracy)
        return MetricRecord({"accuracy": accuracy})

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        torch.set_num_threads(1)  # of this thread
        strategy = FedAvg(
            fraction_train=work.cohort / work.num_workers,
            min_train_nodes=work.cohort,
            fraction_evaluate=0.0,
            min_available_nodes=work.num_workers,
        )
        strategy.start(grid, ArrayRecord(network.state_dict()), num_rounds=clock.total, evaluate_fn=evaluate)

    cores = len(os.sched_getaffinity(0))
    run_simulation(
        server_app=app,
        client_app=client_app(folder),
        num_supernodes=work.num_workers,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": cores, "include_dashboard": False},
        },
    )
    clock.finish("flwr", "ray", "torch")


if __name__ == "__main__":
    main()
