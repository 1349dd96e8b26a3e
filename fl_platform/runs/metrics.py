"""Every name that is logged, written once. Imports nothing."""

ROUND = "round"
EVALUATED = "test/"  # what the names of all metrics of an evaluation start with
TEST_ACCURACY = "test/accuracy"
TEST_LOSS = "test/loss"
TOP_ACCURACY = "test/top_accuracy"
TOP_ACCURACY_ROUND = "test/top_accuracy_round"
FINAL_ACCURACY = "test/final_accuracy"
FORGETTING = "test/forgetting"
CLASS_ACCURACY = "test/class_accuracy"  # one value per class, at every evaluation
TRAIN_LOSS = "train/loss"
UPDATE_NORM = "update/norm"
COHORT_SIZE = "cohort/size"  # workers that reported this round
COHORT = "cohort/workers"  # their ids
FAULTY_WORKERS = "cohort/faulty"
REJECTED_WORKERS = "cohort/rejected"
LOCAL_STEPS = "work/local_steps"  # mean over the workers that reported
GRADIENT_PASSES = "work/gradient_passes"  # gradients of mini-batches that they took together
ROUND_SECONDS = "time/round_seconds"
TOTAL_SECONDS = "time/total_seconds"
TOTAL_BYTES = "communication/total_bytes"
COMPRESSION_ERROR = "compression/relative_error"  # |v - C(v)| / |v|, mean over what workers send

WORKERS = "workers/"  # what the names of all metrics over workers' own test samples start with
WORKERS_SCORED = "workers/scored"  # workers that have test samples of their own
WORKERS_LOSS = "workers/loss"
WORKERS_ACCURACY = "workers/accuracy"  # mean over workers
EACH_WORKER = "workers/each_accuracy"  # one value per worker, by its id; NaN for one without samples
WORKER_FORGETTING = "workers/forgetting"  # made by reports of the accuracies of each worker
WORKERS_STD = "workers/accuracy_std"
WORST_WORKERS = "workers/accuracy_worst"  # mean of the worst tenth of the workers
SMALL_WORKERS = "workers/accuracy_small"  # mean of the third of the workers with the fewest samples
MEDIUM_WORKERS = "workers/accuracy_medium"
LARGE_WORKERS = "workers/accuracy_large"

EPSILON = "privacy/epsilon"  # spent so far, at algorithm.delta
CLIP_NORM = "privacy/clip_norm"
CLIPPED_SHARE = "privacy/clipped_share"  # of this round's updates

MACRO_F1 = "test/macro_f1"
BALANCED_ACCURACY = "test/balanced_accuracy"
PERPLEXITY = "test/perplexity"
CALIBRATION_ERROR = "test/calibration_error"

QP_WORKER_ACTIVE = "qp/worker_active_anchors"
QP_WORKER_RATIO = "qp/worker_norm_ratio"  # |p~| / |p|, mean over local steps and workers
QP_WORKER_RESIDUAL = "qp/worker_kkt_residual"
QP_SERVER_ACTIVE = "qp/server_active_anchors"
QP_SERVER_RATIO = "qp/server_norm_ratio"
QP_SERVER_RESIDUAL = "qp/server_kkt_residual"
QP_WORKER_LENGTH = "qp/worker_gradient_norm"  # |g|, the largest over local steps and workers
QP_WORKER_ERROR = "qp/worker_error"  # |g - g~|, the largest: epsilon_l of the paper's assumption 4
QP_SERVER_LENGTH = "qp/server_momentum_norm"  # |m|
QP_SERVER_ERROR = "qp/server_error"  # |m - m~|, of the paper's assumption 5
QP_FROZEN_TENSORS = "qp/frozen_tensors"
QP_FALLBACKS = "qp/fallbacks"

MEMORY_SLOTS = "memory/slots_used"
MEMORY_EVICTIONS = "memory/evictions"
MEMORY_HITS = "memory/hits"
MEMORY_MEAN_AGE = "memory/mean_age"
MEMORY_MAX_AGE = "memory/max_age"

MEDIA = "media/"  # tables and pictures for W&B, which readers of runs leave out
MEDIA_PARTITION = "media/partition"
MEDIA_CLASSES = "media/class_accuracy"
MEDIA_WORKERS = "media/workers"
MEDIA_PARTICIPATION = "media/participation"  # histogram of the rounds in which workers took part

STATUS = "status"  # see RunStatus
ENDING = "ending"  # see Ending
DIVERGED_ROUND = "diverged_round"
FINGERPRINT = "fingerprint"
ROUNDS = "rounds"


def score_of(model: str, score: str) -> str:
    """Key of a model scored beside the one that counts (FedDyn: server or active_mean); score is accuracy or loss."""
    return f"test/{model}_{score}"


def fine_tuned(name: str) -> str:
    """Key of a metric over workers after each has fine-tuned its model."""
    return name.replace(WORKERS, f"{WORKERS}finetuned_", 1)


def tested(name: str) -> str:
    """Key of what a target can be about: accuracy, loss or one of ``evaluation.metrics``; or epsilon."""
    return EPSILON if name == "epsilon" else f"{EVALUATED}{name}"


def final(name: str) -> str:
    """Summary key of the last value of a metric of ``evaluation.metrics``."""
    return f"{EVALUATED}final_{name}"


TO_TARGET = "to_target/"
"""Beginning of the keys of what it took to reach targets; a run that has not reached one has no such key."""


def to_target(target: float | str, unit: str) -> str:
    """Summary key of what it took to reach an accuracy, or a bound as text: unit is rounds, bytes or seconds."""
    return f"{TO_TARGET}{target if isinstance(target, str) else format(target, 'g')}/{unit}"
