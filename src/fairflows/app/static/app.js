"use strict";

// Send chosen or dropped files, one after the other, and go where the last answer leads.
for (const box of document.querySelectorAll(".drop")) {
  const input = box.querySelector("[type=file]"), said = box.querySelector("output");
  const send = async (files) => {
    let next = "";
    for (const file of files) {
      said.textContent = `Reading ${file.name} …`;
      const headers = { "x-name": encodeURIComponent(file.name) };
      const more = [...box.querySelectorAll("[name]")].map(({ name, value }) => `&${name}=${encodeURIComponent(value)}`).join("");
      const answer = await fetch(box.dataset.upload + more, { method: "POST", body: file, headers }).catch(() => null);
      const found = await answer?.json().catch(() => null);
      if (!answer?.ok) {
        said.textContent = found?.error ?? "The file was refused.";
        return;
      }
      next = found.next;
    }
    if (next) location.assign(next);
  };
  input.addEventListener("change", () => send([...input.files]));
  box.addEventListener("dragover", (event) => event.preventDefault());
  box.addEventListener("drop", (event) => {
    event.preventDefault();
    send([...event.dataTransfer.files]);
  });
}

// A role that is chosen is looked at once.
for (const select of document.querySelectorAll("[data-submit]")) {
  select.addEventListener("change", () => {
    sessionStorage.setItem("focus", select.name);
    select.form.requestSubmit();
  });
}
const last = sessionStorage.getItem("focus"), back = last && document.getElementsByName(last)[0];
if (back) back.focus();
sessionStorage.removeItem("focus");

// What takes seconds in a wide table is shown when it is found.
const follows = document.querySelector("[data-follows]");
if (follows) fetch(follows.dataset.follows).then((answer) => answer.json()).then((text) => (follows.textContent = text)).catch(() => null);

// The slider says what its target allows.
const slider = document.querySelector("[data-plan]");
slider?.addEventListener("input", () => (document.getElementById("chosen").textContent = slider.value));
async function plan() {
  const said = document.getElementById("said"), target = slider.value;
  said.setAttribute("aria-busy", "true");
  const answer = await fetch(`${slider.dataset.plan}?target=${target}`).catch(() => null);
  if (slider.value !== target || !answer?.ok) return;
  const sentences = (await answer.json()).map((text) => Object.assign(document.createElement("p"), { textContent: text }));
  said.replaceChildren(...sentences);
  said.removeAttribute("aria-busy");
}
slider?.addEventListener("change", plan);
if (slider) plan();

// The stages of a run, with their seconds.
const stages = document.querySelector("[data-progress]");
async function follow() {
  const answer = await fetch(stages.dataset.progress).catch(() => null);
  const run = answer?.ok ? await answer.json() : { state: "gone" };
  const ended = document.getElementById("ended"), bar = document.getElementById("part");
  const lines = (run.stages ?? []).map(({ text, seconds }) =>
    Object.assign(document.createElement("li"), { textContent: `${text} (${seconds} s)` }));
  if (lines.length) stages.replaceChildren(...lines);
  bar.hidden = run.state !== "running";
  if (run.part?.[2]) Object.assign(bar, { max: run.part[2], value: run.part[1], title: run.part[0] });
  else bar.removeAttribute("value");  // it moves, and no end is known
  if (run.state === "done") location.replace(stages.dataset.next);
  else if (run.state === "running") setTimeout(follow, 500);
  else ended.textContent = run.error ?? "The page was ended: start `fairflows app` again.";
}
if (stages) follow();
