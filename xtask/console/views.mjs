// The views on the small scene, in light and dark, by keyboard, and the dialog of an action.

import { CONNECTED, look, open, sleep, VIEWS } from "./browser.mjs";

export default async function views(page, { link, own, only }) {
  await connect(page, own);
  // `baton console` has no history.
  await look(page, { history: VIEWS.history }, "own-", only);
  await connect(page, link);
  await look(page, VIEWS, "", only);
  if (only) return;
  await byKeyboard(page);
  await actions(page);
}

async function connect(page, link) {
  await page.open(link);
  await page.expect("the page does not connect", CONNECTED, 20);
  await sleep(1500);
}

async function byKeyboard(page) {
  await page.evaluate(`location.hash = "#/locks"`);
  await sleep(500);
  for (const key of ["j", "j", "Enter"]) await page.key(key);
  await page.expect("keyboard: Enter does not open the details", `!document.getElementById("detail").hidden`);
  await page.key("Escape");
  await page.expect("keyboard: Escape does not close the details", `document.getElementById("detail").hidden`);
  await page.key("/");
  await page.expect("keyboard: / does not reach the search", `document.activeElement.id === "search"`);
  await page.key("Escape");
  for (let nth = 1; nth <= 9; nth += 1) {
    await page.key(String(nth));
    await page.expect(`keyboard: ${nth} does not open its view`, `document.querySelectorAll("#nav a")[${nth - 1}].getAttribute("aria-current") === "page"`);
  }
}

const press = (text) => `[...document.querySelectorAll("#detail button")].find((button) => button.textContent === ${JSON.stringify(text)})?.click()`;
const DIALOG = `document.getElementById("dialog-text").textContent`;
const MAY_DO = `document.getElementById("dialog").open && !document.getElementById("dialog-do").disabled`;

async function actions(page) {
  await open(page, "locks", VIEWS.locks);
  await page.expect("action: there is no button to break a lock", `${"[...document.querySelectorAll('#detail button')]"}.some((button) => button.textContent === "Break")`);
  await page.evaluate(press("Break"));
  await page.expect("action: it does not say what it will do", `${MAY_DO} && ${DIALOG}.includes("holds with token")`);
  for (const theme of ["light", "dark"]) {
    await page.theme(theme);
    await page.audit(`dialog, ${theme}`);
  }
  await page.theme("light");
  await page.picture("action");
  // The safe answer is the one that a key press meets.
  await page.expect("action: the dialog does not begin at Cancel", `document.activeElement.id !== "dialog-do"`);
  await page.key("Escape");
  await page.expect("action: Escape does not close the dialog", `!document.getElementById("dialog").open`);
  await open(page, "queues", "#/queues?at=%2Fjobs%2Fmail");
  await page.expect("action: there is no dead letter", `document.querySelector("#detail")?.textContent.includes("Dead letters · 3")`);
  await page.evaluate(press("Requeue"));
  await page.expect("action: requeueing cannot be confirmed", MAY_DO);
  await page.evaluate(`document.getElementById("dialog-do").click()`);
  await page.expect("action: it does not say what it has done", `${DIALOG}.includes("is in /jobs/mail again")`);
  await page.key("Escape");
  await page.expect("action: the page does not show what has changed", `document.querySelector("#detail")?.textContent.includes("Dead letters · 2")`, 20);
}
