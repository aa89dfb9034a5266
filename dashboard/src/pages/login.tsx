import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { asApiError } from "../client";
import { Button } from "../parts/button";
import { Field } from "../parts/field";
import { Logo } from "../parts/logo";
import { Problem } from "../parts/state";
import { login } from "../session";

export function LoginPage({ note }: { note: string | null }) {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const [wait, setWait] = useState(0);
  const form = useRef<HTMLFormElement>(null);

  useLayoutEffect(() => {
    document.title = "Sign in · Holdfast";
    form.current?.querySelector<HTMLElement>("input[type=password]")?.focus();
  }, []);
  useEffect(() => {
    if (wait <= 0) return;
    const timer = setTimeout(() => setWait(wait - 1), 1000);
    return () => clearTimeout(timer);
  }, [wait]);

  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      await login(token.trim());
    } catch (raised) {
      const refused = asApiError(raised);
      setError(
        refused.status === 401
          ? "This token is not accepted: it is wrong, expired or revoked."
          : refused.message,
      );
      setWait(refused.status === 429 ? Math.ceil(refused.retryAfter ?? 30) : 0);
    } finally {
      setBusy(false);
    }
  };

  const why = wait > 0 ? `Too many tries. Wait ${wait} s.` : token.trim() === "" ? "Give a token." : null;
  return (
    <main class="login">
      <form
        ref={form}
        onSubmit={(event) => {
          event.preventDefault();
          if (why === null && !busy) void submit();
        }}
      >
        <Logo size={44} />
        <h1>Sign in to Holdfast</h1>
        {note && <p role="status">{note}</p>}
        {/* Those who keep passwords want a name to keep them by. */}
        <input type="text" name="username" autocomplete="username" value="holdfast" hidden readOnly />
        <Field
          label="Access token"
          type="password"
          value={token}
          onInput={setToken}
          autoComplete="current-password"
          maxLength={4096}
          placeholder="hf_…"
          hint={
            <>
              Made by <code>holdfast tokens</code>. It is kept in a cookie that scripts cannot read.
            </>
          }
        />
        {error && <Problem text={wait > 0 ? `${error} Wait ${wait} s.` : error} />}
        <Button look="primary" type="submit" icon="key" busy={busy} why={why}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
