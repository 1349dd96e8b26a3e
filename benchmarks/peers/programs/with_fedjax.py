"""FedAvg with fedjax: its federated_averaging, in-memory data and evaluate_model, compiled by XLA."""

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from common import EVALUATED_AT_ONCE, Work, begin
from fedjax.algorithms import fed_avg


def make_model(work: Work) -> fedjax.Model:
    """The network in haiku; images with channels last, as XLA prefers them on a CPU."""

    def forward(batch: dict[str, jnp.ndarray], is_train: bool = True) -> jnp.ndarray:
        def dropped(x: jnp.ndarray) -> jnp.ndarray:
            return hk.dropout(hk.next_rng_key(), 0.5, x) if is_train else x

        x = batch["x"]
        if work.network == "mlp":
            return hk.Linear(10)(jax.nn.relu(hk.Linear(100)(jax.nn.relu(hk.Linear(200)(hk.Flatten()(x))))))
        for channels in (32, 64):
            x = hk.max_pool(jax.nn.relu(hk.Conv2D(channels, 5, padding="VALID")(x)), (2, 2, 1), (2, 2, 1), "VALID")
        x = hk.Flatten()(x)
        for width in (512, 128):
            x = dropped(jax.nn.relu(hk.Linear(width)(x)))
        return hk.Linear(10)(x)

    sample = {"x": jnp.asarray(channels_last(work.train_x[:1])), "y": jnp.asarray(work.train_y[:1])}
    return fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(forward),
        sample_batch=sample,
        train_loss=lambda batch, logits: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits),
        eval_metrics={"accuracy": fedjax.metrics.Accuracy()},
        train_kwargs={"is_train": True},
        eval_kwargs={"is_train": False},
    )


def channels_last(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


def main() -> None:
    work, clock = begin()
    model = make_model(work)
    rng = np.random.default_rng(work.seed)
    train = channels_last(work.train_x)
    workers = {
        f"{worker:03}".encode(): {"x": train[mine], "y": work.train_y[mine]} for worker, mine in enumerate(work.split)
    }
    data = fedjax.InMemoryFederatedData(workers)
    test = fedjax.ClientDataset({"x": channels_last(work.test_x), "y": work.test_y})
    test_batches = list(test.padded_batch(batch_size=EVALUATED_AT_ONCE))
    algorithm = fed_avg.federated_averaging(
        grad_fn=fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(learning_rate=work.rate),
        server_optimizer=fedjax.optimizers.sgd(learning_rate=1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=1),
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(work.seed)))
    names = sorted(workers)
    for number in range(clock.total):
        chosen = [names[worker] for worker in rng.choice(work.num_workers, work.cohort, replace=False)]
        keys = jax.random.split(jax.random.PRNGKey(number), work.cohort)
        cohort = [(name, data.get_client(name), key) for name, key in zip(chosen, keys, strict=True)]
        state, _ = algorithm.apply(state, cohort)
        found = fedjax.evaluate_model(model, state.params, test_batches)
        clock.tick(float(found["accuracy"]))
    clock.finish("fedjax", "jax")


if __name__ == "__main__":
    main()
