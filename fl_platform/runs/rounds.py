"""The rounds of many runs: a table of each, joined column by column where something of all of them is asked for."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pyarrow as pa

from fl_platform.runs import metrics
from fl_platform.runs.record import concatenate

_NO_COLUMNS = pa.schema([(metrics.ROUND, pa.int64())])
_RUN = "run_id"
"""Column of frames that says which run a row is of; a metric that a foreign log calls so is left out."""


@dataclass(frozen=True)
class Rounds:
    """Run id -> a table with a row per round and a column per metric.

    ``schema`` has the columns of all runs that were read, also of those that a selection has left out since. A column
    whose types disagree among them is text.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    schema: pa.Schema = _NO_COLUMNS

    @classmethod
    def of(cls, tables: Mapping[str, pa.Table]) -> "Rounds":
        """The rounds of these runs."""
        kinds: dict[str, pa.DataType] = {}
        for schema in dict.fromkeys(table.schema.remove_metadata() for table in tables.values()):  # few differ
            for column in schema:
                if column.name == _RUN:
                    continue
                is_equal = kinds.setdefault(column.name, column.type) == column.type
                kinds[column.name] = column.type if is_equal else pa.string()
        return cls(tables, pa.schema(kinds) if kinds else _NO_COLUMNS)

    def __len__(self) -> int:
        return sum(table.num_rows for table in self.tables.values())

    def __contains__(self, name: str) -> bool:
        return name in self.schema.names

    def only(self, run_ids: Iterable[str]) -> "Rounds":
        """The rounds of some of the runs, in their order."""
        return replace(self, tables={run_id: self.tables[run_id] for run_id in run_ids if run_id in self.tables})

    def with_column(self, name: str, values: Mapping[str, pa.Array]) -> "Rounds":
        """The rounds with a further column of numbers, which has ``values`` by run id; other runs are without it."""
        added = {run_id: self.tables[run_id].append_column(name, array) for run_id, array in values.items()}
        return Rounds({**self.tables, **added}, self.schema.append(pa.field(name, pa.float64())))

    def columns(self, run_ids: Sequence[str], names: Collection[str]) -> pd.DataFrame:
        """Some metrics of some runs, which follow in order: ``run_id`` is the place of a row's run among ``run_ids``.

        A metric that no run has is left out; where only some have it, it is NaN.
        """
        places = [place for place, run_id in enumerate(run_ids) if run_id in self.tables]
        tables = [self.tables[run_ids[place]] for place in places]
        frame = self._joined(tables, [name for name in self.schema.names if name in names])
        frame.insert(0, _RUN, np.repeat(np.array(places, np.int64), [table.num_rows for table in tables]))
        return frame

    def frame(self) -> pd.DataFrame:
        """Everything: run_id, and all columns of all runs."""
        ids = [pa.repeat(run_id, table.num_rows) for run_id, table in self.tables.items()]
        frame = self._joined(list(self.tables.values()), self.schema.names)
        frame.insert(0, _RUN, pa.chunked_array(ids, pa.string()).to_pandas())
        return frame

    def _joined(self, tables: Sequence[pa.Table], names: Sequence[str]) -> pd.DataFrame:
        wanted = set(names)
        parts = [table.select([name for name in table.column_names if name in wanted]) for table in tables]
        empty = self.schema.empty_table().select(names)  # columns have the types and the order of all runs
        frame: pd.DataFrame = concatenate([empty, *parts]).to_pandas(types_mapper=_kept_type)
        return frame


def _kept_type(kind: pa.DataType) -> pd.ArrowDtype | None:
    """Lists stay in Arrow's memory: as objects of their own they take a second for a million rounds."""
    return pd.ArrowDtype(kind) if pa.types.is_list(kind) else None
