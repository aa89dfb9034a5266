import { REFRESH } from "../resource";
import { Button } from "./button";

export function Refresh() {
  return (
    <Button icon="refresh" onClick={() => dispatchEvent(new Event(REFRESH))}>
      Refresh
    </Button>
  );
}
