import { go, route, to } from "../route";
import { me } from "../session";
import { Icon } from "./icon";

/** Chooses one of several databases, or all of them. The page stays the same if every database has it. */
export function DatabaseSwitch() {
  const names = me.value?.databases ?? [];
  if (names.length === 0) return null;
  const { database, path } = route.value;
  return (
    <label class="database-switch">
      <span>
        <Icon name="databases" />
        Database
      </span>
      <select
        value={database ?? ""}
        onChange={(event) => {
          const name = event.currentTarget.value;
          // A job, a chain or a runner of one database is not in another.
          go(name === "" ? to("", {}, null) : to(path.slice(0, 1), {}, name));
        }}
      >
        <option value="">All databases</option>
        {names.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
