// The form for credentials, after an answer 401.

import { basic, signIn } from "./api.ts";
import { el } from "./dom.ts";

export function signInForm(schemes: string, reason: string, done: () => void): HTMLElement {
  const user = el("input", { id: "user", autocomplete: "username" });
  const password = el("input", { id: "password", type: "password", autocomplete: "current-password" });
  const token = el("input", { id: "token", type: "password", autocomplete: "off" });
  const field = (label: string, input: HTMLInputElement) =>
    el("p", {}, el("label", { for: input.id }, label), input);
  const send = (authorization: string) => (event: Event) => {
    event.preventDefault();
    signIn(authorization === "Bearer" ? `Bearer ${token.value.trim()}` : basic(user.value, password.value));
    done();
  };
  const submit = () => el("p", {}, el("button", { type: "submit" }, "Sign in"));
  const byPassword = el(
    "form",
    { "aria-label": "Password", on: { submit: send("Basic") } },
    field("User", user),
    field("Password", password),
    submit(),
  );
  const byToken = el(
    "form",
    { "aria-label": "Token", on: { submit: send("Bearer") } },
    field("Token of the cluster (kubectl create token …)", token),
    submit(),
  );
  return el(
    "div",
    { class: "signin" },
    el("h1", {}, "Sign in"),
    el("p", { role: "alert" }, reason),
    schemes.includes("basic") ? byPassword : null,
    schemes.includes("bearer") || !schemes.includes("basic") ? byToken : null,
    el("p", { class: "sub" }, "The credentials are kept for this tab until it is closed."),
  );
}
