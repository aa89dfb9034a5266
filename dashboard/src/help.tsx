import { Dialog } from "./parts/dialog";
import { me } from "./session";
import { DATABASES_KEY, enabled, PLACES, setEnabled } from "./shortcuts";

const OTHERS: [keys: string[], what: string][] = [
  [["/"], "Search or filter"],
  [["r"], "Refresh this page"],
  [["t"], "Change the theme"],
  [["?"], "Show this help"],
  [["Esc"], "Close a dialog"],
];

export function Help({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl class="keys">
        {(me.value?.databases.length ?? 0) > 0 && <Keys keys={["g", DATABASES_KEY]} what="Databases" />}
        {PLACES.map((place) => (
          <Keys key={place.key} keys={["g", place.key]} what={place.name} />
        ))}
        {OTHERS.map(([keys, what]) => (
          <Keys key={what} keys={keys} what={what} />
        ))}
      </dl>
      <p class="note">
        In a chart or a graph, the arrow keys move; with Shift, a click chooses a range of rows.
      </p>
      <label class="check">
        <input
          type="checkbox"
          checked={enabled.value}
          onChange={(event) => setEnabled(event.currentTarget.checked)}
        />
        Keys are shortcuts
      </label>
      <p class="note">
        <a href="notices.txt" target="_blank" rel="noreferrer">
          Licenses of what this page is made with
        </a>
      </p>
    </Dialog>
  );
}

function Keys({ keys, what }: { keys: string[]; what: string }) {
  return (
    <div>
      <dt>
        {keys.map((key) => (
          <kbd key={key}>{key}</kbd>
        ))}
      </dt>
      <dd>{what}</dd>
    </div>
  );
}
