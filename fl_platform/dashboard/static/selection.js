// What the filter left: the ids of runs, the keys in which they differ, and columns of values, as the server found them.
import { plain, shortKey } from "./format.js";

export class Selection {
  constructor(found = { ids: [], settings: [], differing: [], keys: [], figures: [], columns: {} }) {
    Object.assign(this, found);
    this.places = new Map(this.ids.map((id, place) => [id, place]));
  }

  has(id) {
    return this.places.has(id);
  }

  // The value of a column for a run; null where it has none or the column was not asked for.
  value(id, name) {
    const [column, place] = [this.columns[name], this.places.get(id)];
    return column && place != null ? column.values[column.codes[place]] : null;
  }

  // The settings that tell a run from the others shown: "local_lr=0.1  memory_size=50".
  settingsOf(id) {
    return this.settings.map((key) => [key, this.value(id, key)]).filter(([, value]) => value != null)
      .map(([key, value]) => `${shortKey(key)}=${plain(value)}`).join("  ");
  }
}

// Text as a filter reads it, whatever it holds.
export const quote = (text) => `"${String(text).replace(/["\\]/g, "\\$&")}"`;

export const anyOf = (key, values) => `${quote(key)}=${values.map(quote).join(",")}`;
