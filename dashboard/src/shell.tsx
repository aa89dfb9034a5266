import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Help } from "./help";
import { DatabaseSwitch } from "./parts/database-switch";
import { Icon, type IconName } from "./parts/icon";
import { Logo } from "./parts/logo";
import { Toasts } from "./parts/toast";
import { REFRESH } from "./resource";
import { go, route, to } from "./route";
import { logout, me } from "./session";
import { type Command, enabled, isTyping, PLACES, type Place, reader } from "./shortcuts";
import { nextTheme, theme } from "./theme";

/** What is around every page: the menu, who is signed in, messages and keys. */
export function Shell({ children }: { children: ComponentChildren }) {
  const [help, setHelp] = useState(false);
  const [open, setOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const here = route.value.path[0] ?? "";

  useLayoutEffect(() => {
    const read = reader();
    const press = (event: KeyboardEvent) => {
      if (!enabled.value || isTyping(event) || document.querySelector("dialog[open]")) return;
      const command = read(event.key, event.timeStamp);
      if (command === null) return;
      event.preventDefault();
      run(command, () => setHelp(true));
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);

  return (
    <div class="shell">
      <button type="button" class="skip button primary" onClick={() => main.current?.focus()}>
        Skip to the page
      </button>
      <header class="side" data-open={open}>
        <div class="side-box">
          <div class="brand">
            <a href={to("", {}, null)} aria-label="Holdfast, overview">
              <Logo />
              <span>Holdfast</span>
            </a>
            <button
              type="button"
              class="icon-button menu-button"
              aria-expanded={open}
              aria-controls="menu"
              aria-label="Menu"
              onClick={() => setOpen(!open)}
            >
              <Icon name="menu" size={20} />
            </button>
          </div>
          <div class="side-fold" id="menu">
            <DatabaseSwitch />
            <nav aria-label="Pages">
              <ul>
                {places().map(({ name, path, key }) => (
                  <li key={path}>
                    <a
                      href={to(path)}
                      aria-current={here === path ? "page" : undefined}
                      title={enabled.value ? `g ${key}` : undefined}
                      onClick={() => setOpen(false)}
                    >
                      <Icon name={(path || "overview") as IconName} />
                      {name}
                    </a>
                  </li>
                ))}
              </ul>
            </nav>
            <Foot onHelp={() => setHelp(true)} />
          </div>
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {children}
      </main>
      <Toasts />
      {help && <Help onClose={() => setHelp(false)} />}
    </div>
  );
}

/** With several databases and none of them chosen, there is only the page of them all. */
function places(): readonly Place[] {
  const several = (me.value?.databases.length ?? 0) > 0;
  return several && route.value.database === null ? [] : PLACES;
}

function Foot({ onHelp }: { onHelp: () => void }) {
  return (
    <div class="side-foot">
      <div class="tools">
        <button
          type="button"
          class="icon-button"
          aria-label={`Theme: ${theme.value}`}
          title={`Theme: ${theme.value}`}
          onClick={nextTheme}
        >
          <Icon name={theme.value} />
        </button>
        <button
          type="button"
          class="icon-button"
          aria-label="Keyboard help"
          title="Keyboard help"
          onClick={onHelp}
        >
          <Icon name="help" />
        </button>
        <button
          type="button"
          class="icon-button"
          aria-label="Sign out"
          title="Sign out"
          onClick={() => void logout()}
        >
          <Icon name="out" />
        </button>
      </div>
      <p class="who">
        <b>{me.value?.name}</b>
        <span>{me.value?.role}</span>
      </p>
      <p class="version">Holdfast {me.value?.version}</p>
    </div>
  );
}

function run(command: Command, showHelp: () => void): void {
  if (command === "help") showHelp();
  else if (command === "theme") nextTheme();
  else if (command === "refresh") dispatchEvent(new Event(REFRESH));
  else if (command === "search") document.querySelector<HTMLElement>("[data-mark=search]")?.focus();
  else if (command === "databases") go(to("", {}, null));
  else go(to(command.go));
}
