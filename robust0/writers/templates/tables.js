"use strict";
// Tables: a click on a heading sorts, a button saves the table as CSV. Files are made in the page.

const words = (node) => node.textContent.replace(/\s+/g, " ").trim();

const button = (label, act) => {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = label;
  made.addEventListener("click", act);
  return made;
};

const tools = (after, ...buttons) => {
  const line = document.createElement("p");
  line.className = "tools";
  line.append(...buttons);
  after.after(line);
};

const save = (name, type, text) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

// What a file of this element is called: the heading above it, and its place below that heading.
const fileName = (element, kind, ending) => {
  const section = element.closest("section") ?? document.body;
  const place = [...section.querySelectorAll(kind)].indexOf(element) + 1;
  return `robust0-${section.querySelector("h2")?.id ?? "page"}${place > 1 ? `-${place}` : ""}.${ending}`;
};

(() => {
  // [group, value]: numbers before words, whatever is missing last.
  const key = (cell) => {
    const shown = cell.dataset.value ?? words(cell);
    if (shown === "" || shown === "-") return [2, ""];
    const number = /^[≤<]?\s*[-+]?[\d.]/.test(shown) ? parseFloat(shown.replace(/[≤<,\s]/g, "")) : NaN;
    return Number.isNaN(number) ? [1, shown] : [0, number];
  };

  const before = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));

  const sort = (table, heading, column) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [row, key(row.cells[column])]);
    const numbers = rows.some(([, [group]]) => group === 0);
    const now = heading.getAttribute("aria-sort") ?? (numbers ? "ascending" : "descending");
    const up = now === "descending";
    rows.sort(([, [g, a]], [, [h, b]]) => g - h || (up ? before(a, b) : before(b, a)));
    for (const other of table.tHead.querySelectorAll("th")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rows.map(([row]) => row));
  };

  // A cell that a spreadsheet would run as a formula is made text; numbers lose their decoration.
  const plain = (cell) => {
    const shown = words(cell);
    if (/^[-+]?[\d,]*\.?\d+( %)?$/.test(shown)) return shown.replace(/,| %/g, "");
    const safe = /^[=+\-@]./.test(shown) ? `'${shown}` : shown;
    return /[",]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  };

  const csv = (table) => {
    const bars = [...table.tHead.rows[0].cells].map((cell) => cell.classList.contains("scale"));
    const lines = [...table.rows].map((row) => [...row.cells].filter((_, at) => !bars[at]).map(plain));
    return lines.map((line) => line.join(",") + "\r\n").join("");
  };

  for (const table of document.querySelectorAll("table")) {
    if (!table.tHead) continue;
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      if (heading.classList.contains("scale")) return;
      const sorter = button("", () => sort(table, heading, column));
      sorter.className = "sort";
      sorter.append(...heading.childNodes);
      heading.append(sorter);
    });
    const name = fileName(table, "table", "csv");
    tools(table.parentElement, button("Save as CSV", () => save(name, "text/csv", csv(table))));
  }
})();
