"""The rules by which one of several settings of a method stands for it in tables and figures."""

from typing import Literal, get_args

Selection = Literal["only", "best", "best_late", "common", "common_late", "validation", "validation_late"]
"""
``only``: there may be only one. ``best``: each method's setting with the highest mean top accuracy. ``common``: the
setting, of the keys that all methods have, at which the mean of the top accuracy over the methods is highest.
``best_late``, ``common_late``: the same by the mean accuracy of the last tenth of the rounds, which a lucky round
cannot raise much. ``validation``, ``validation_late``: each method's best setting among runs that were evaluated on
held-out training data (``data.validation_fraction`` above 0), shown by the runs at that setting that were evaluated on
the test set. Means are over seeds; settings with fewer seeds than another do not count.
"""
SELECTIONS: tuple[Selection, ...] = get_args(Selection)
