// Three servers that fail under the page: it says so, goes on by itself, and shows what is there.

import { ALARM, CONNECTED, open } from "./browser.mjs";

const QUEUE = `document.querySelector("main")?.textContent.includes("/jobs/mail")`;

export default async function outages(page, { servers, console: link }) {
  const [one, other] = servers;
  const main = `document.querySelector("main").textContent`;
  // All servers stand still under baton console.
  await page.open(link);
  await page.expect("outage: baton console does not connect", CONNECTED, 60);
  await open(page, "queues", "#/queues");
  await page.expect("outage: the queue is not there", QUEUE, 60);
  for (const server of servers) process.kill(server.pid, "SIGSTOP");
  await page.expect("outage: the page does not say that the servers are gone", `${ALARM}.includes("The survey stopped")`, 90);
  await page.picture("outage-all");
  for (const server of servers) process.kill(server.pid, "SIGCONT");
  await page.expect("outage: the page does not go on after the servers are back", `${CONNECTED} && ${ALARM} === "" && ${QUEUE}`, 180);
  // One stands still under the page of another: it goes on, and shows which one does not answer.
  await page.open("about:blank");
  await page.open(`http://${one.http}/#/ensemble`);
  await page.expect("outage: the page of a server does not connect", CONNECTED, 60);
  await page.expect("outage: the ensemble has not three servers", servers.map((server) => `${main}.includes("${server.address}")`).join(" && "), 60);
  process.kill(other.pid, "SIGSTOP");
  await page.expect("outage: a server that stands still is not shown as such", `${main}.includes("no answer in time")`, 60);
  await page.picture("outage-one");
  process.kill(other.pid, "SIGCONT");
  await page.expect("outage: a server that goes on is not shown as such", `!${main}.includes("no answer in time")`, 60);
  // The server that shows the page is killed, and started again by baton dev.
  await open(page, "queues", "#/queues");
  await page.expect("outage: the queue is not on the page of the server", QUEUE, 60);
  process.kill(one.pid, "SIGKILL");
  await page.expect("outage: the page does not say that its server is gone", `${ALARM}.includes("cannot be reached") && ${ALARM}.includes("may be old")`, 30);
  if (!(await page.evaluate(QUEUE))) page.problems.push("outage: what was known is gone from the page");
  await page.picture("outage-server");
  await page.expect("outage: the page does not come back by itself", `${CONNECTED} && ${ALARM} === "" && ${QUEUE}`, 120);
}
