import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/controls.css";
import "./styles/tables.css";
import "./styles/surfaces.css";
import "./styles/overview.css";
import "./styles/jobs.css";
import "./styles/pages.css";
import { render } from "preact";
import { App } from "./app";
import { startClock } from "./clock";
import { startRouting } from "./route";
import { startSession } from "./session";
import { startTheme } from "./theme";

startRouting();
startTheme();
startClock();
startSession();

const root = document.getElementById("app");
if (root) render(<App />, root);
