// One part of `cargo xtask console-check`: prints what is wrong, and ends with 1 if something is.
//
//   node --experimental-websocket check.mjs PART FOLDER JSON

import { browser } from "./browser.mjs";
import large from "./large.mjs";
import outages from "./outages.mjs";
import views from "./views.mjs";

const [part, folder, given] = process.argv.slice(2);
const page = await browser(folder, { isTorn: part === "outages" });
try {
  await { views, large, outages }[part](page, JSON.parse(given));
} catch (error) {
  page.problems.push(`the check broke off: ${error.stack}`);
}
console.log(`${part}: ${page.problems.length ? `\n  ${page.problems.join("\n  ")}` : "no problem found"}`);
process.exitCode = page.problems.length ? 1 : 0;
page.close();
setTimeout(() => process.exit(), 500);
