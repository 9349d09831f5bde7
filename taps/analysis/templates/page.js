"use strict";

// Theme: the reader's system preference until the button says otherwise.
const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
const button = document.getElementById("theme");
let chosen = null;
function showTheme() {
  const theme = chosen ?? (system.matches ? "dark" : "light");
  root.dataset.theme = theme;
  button.textContent = theme === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to the ${theme === "dark" ? "light" : "dark"} theme`);
}
button.addEventListener("click", () => {
  chosen = root.dataset.theme === "dark" ? "light" : "dark";
  showTheme();
});
system.addEventListener("change", showTheme);
showTheme();

// Tables: a header's button sorts by its column, numbers by value, cells without one last.
function sortKey(row, column) {
  const text = row.cells[column].textContent.trim();
  const number = Number.parseFloat(text.replace(/\s(?=\d{3})/g, ""));
  return { text, number };
}
function compare(one, two) {
  const oneIsNumber = !Number.isNaN(one.number), twoIsNumber = !Number.isNaN(two.number);
  if (oneIsNumber && twoIsNumber) return one.number - two.number;
  return one.text.localeCompare(two.text);
}
for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    header.firstElementChild.addEventListener("click", () => {
      const descending = header.getAttribute("aria-sort") === "ascending";
      const keyed = [...table.tBodies[0].rows].map((row) => ({ row, key: sortKey(row, column) }));
      const empty = keyed.filter(({ key }) => key.text === "" || key.text === "–");
      const filled = keyed.filter(({ key }) => key.text !== "" && key.text !== "–");
      filled.sort((one, two) => (descending ? compare(two.key, one.key) : compare(one.key, two.key)));
      table.tBodies[0].append(...[...filled, ...empty].map(({ row }) => row));
      headers.forEach((other) => other.setAttribute("aria-sort", "none"));
      header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    });
  });
}

// On a phone a row is a card: each cell is told its column's name, and the table's parts stay a table to screen readers.
for (const table of document.querySelectorAll("table.cards")) {
  const names = [...table.tHead.rows[0].cells].map((header) => header.textContent);
  table.setAttribute("role", "table");
  for (const row of table.tBodies[0].rows) {
    row.setAttribute("role", "row");
    [...row.cells].forEach((cell, column) => {
      cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
      cell.dataset.label = names[column];
    });
  }
}

// The filter of the rows: standing ones first, all others once something is asked for.
const filter = document.getElementById("filter");
function showRows() {
  const { family, temperature, strategy, drafters, benchmark, text, all } = filter.elements;
  const table = document.getElementById("rows"), rows = [...table.tBodies[0].rows];
  const wanted = text.value.trim().toLowerCase();
  const isOpen = all.checked || strategy.value || drafters.value || wanted;
  for (const row of rows) {
    const [, ownFamily, ownTemperature] = [...row.cells].map((cell) => cell.textContent);
    const fits = (!family.value || family.value === ownFamily) && (!temperature.value || temperature.value === ownTemperature)
      && (!strategy.value || strategy.value === row.dataset.strategy) && (!drafters.value || drafters.value === row.dataset.drafters)
      && row.textContent.toLowerCase().includes(wanted);
    row.hidden = !(fits && (isOpen || row.classList.contains("standing")));
    [...row.cells].forEach((cell, column) => { cell.hidden = isHidden(column); });
  }
  [...table.tHead.rows[0].cells].forEach((cell, column) => { cell.hidden = isHidden(column); });
  filter.querySelector("output").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;

  function isHidden(column) {
    return Boolean(benchmark.value) && column >= 4 && column !== Number(benchmark.value);
  }
}
filter.addEventListener("input", showRows);
filter.addEventListener("submit", (event) => event.preventDefault());
filter.hidden = false;
showRows();

// A link to a claim opens it.
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === "DETAILS") target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();

const comparison = startComparison();
